"""A share fetch: acquire what is free of the member's partitions, or wait until something is, or until the time is up.

Nothing is acquired before there is `min_bytes` to give, so that a wait holds no records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.share import group_limits
from ottla.broker.share.reading import ReadBatches, read_batches
from ottla.coordinator.share.in_flight import AcquireRequest
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.share_fetch_request import ShareFetchRequest
from ottla.protocol.generated.share_fetch_response import AcquiredRecords, PartitionData

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.share.partition import SharePartition
    from ottla.env.seams import Timer

_RECORD_LIMIT_MODE = 1
Place = tuple[Uuid, int]


class _Offer(NamedTuple):
    """What a share-partition could give."""

    place: Place
    share_partition: SharePartition
    offset: int
    read: ReadBatches


class ShareFetch:
    """`done` is called once, with an answer for each place that there is something to say of."""

    def __init__(
        self,
        broker: Broker,
        request: ShareFetchRequest,
        places: list[Place],
        done: Callable[[dict[Place, PartitionData]], None],
    ) -> None:
        self._broker = broker
        self._request = request
        self._done = done
        self._answers: dict[Place, PartitionData] = {}
        self._partitions: dict[Place, SharePartition] = {}
        self._timer: Timer | None = None
        self._scheduled = False
        self.finished = False
        group_id = request.group_id or ""
        for topic_id, index in _rotated(places, request.share_session_epoch):
            try:
                opened = broker.shares.open(SharePartitionKey(group_id, topic_id, index))
                self._partitions[topic_id, index] = opened
            except KafkaError as error:
                self._answers[topic_id, index] = failed(index, error)

    def start(self) -> None:
        request = self._request
        if not self._partitions or request.max_records <= 0 or request.max_bytes <= 0:
            self._finish({})
            return
        if self._try(force=request.max_wait_ms <= 0):
            return
        for share_partition in self._partitions.values():
            share_partition.watch(self, self._on_progress)
            share_partition.partition.watch(self, self._on_progress)
        self._timer = self._broker.timers.call_later(request.max_wait_ms, self._on_timeout)

    def cancel(self) -> None:
        self.finished = True
        if self._timer is not None:
            self._timer.cancel()
        for share_partition in self._partitions.values():
            share_partition.unwatch(self)
            share_partition.partition.unwatch(self)

    def _on_progress(self) -> None:
        """Once per turn of the loop, after whatever woke us has been answered."""
        if not self._scheduled and not self.finished:
            self._scheduled = True
            self._broker.timers.call_soon(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        if not self.finished:
            self._try(force=False)

    def _on_timeout(self) -> None:
        if not self.finished:
            self._try(force=True)

    # Acquiring

    def _try(self, *, force: bool) -> bool:
        """Whether that was the end of it."""
        offers = self._offers()
        if not offers and all(place in self._answers for place in self._partitions):
            self._finish({})
            return True
        size = sum(len(offer.read.data) for offer in offers)
        if not force and (size == 0 or size < self._request.min_bytes):
            return False
        found = {offer.place: data for offer, data in self._acquire(offers)}
        if not force and not any(data.acquired_records for data in found.values()):
            # Everything read was aborted, or gone from the log: there may be more behind it.
            self._on_progress()
            return False
        self._finish(found)
        return True

    def _offers(self) -> list[_Offer]:
        ready = []
        for place, share_partition in self._partitions.items():
            if share_partition.error is not None:
                self._answers[place] = failed(place[1], share_partition.error)
            elif share_partition.in_flight is not None and share_partition.in_flight.can_acquire(
                share_partition.limits
            ):
                ready.append((place, share_partition))
        isolation_level = group_limits.isolation_level(self._broker, self._request.group_id or "")
        offers = []
        for place, share_partition in ready:
            in_flight = share_partition.in_flight
            if in_flight is None:
                continue
            offset = in_flight.next_fetch_offset
            partition = share_partition.partition
            try:
                partition.require_leader(share_partition.leader_epoch)
                read = read_batches(partition, offset, self._request.max_bytes // len(ready), isolation_level)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._answers[place] = failed(place[1], error)
                    continue
                in_flight.log_start_moved(partition.log.log_start_offset)
                read = ReadBatches(b"", [], [])
            offers.append(_Offer(place, share_partition, offset, read))
        return offers

    def _acquire(self, offers: list[_Offer]) -> list[tuple[_Offer, PartitionData]]:
        request = self._request
        found = []
        left = request.max_records
        for offer in offers:
            data = PartitionData(offer.place[1], records=b"")
            in_flight = offer.share_partition.in_flight
            if in_flight is not None and left > 0 and offer.read.batches:
                acquire_request = AcquireRequest(
                    request.member_id or "",
                    left,
                    request.batch_size,
                    request.share_acquire_mode == _RECORD_LIMIT_MODE,
                    offer.share_partition.lock_until_ms(),
                )
                limits = offer.share_partition.limits
                acquired = in_flight.acquire(
                    acquire_request, offer.read.spans, offer.offset, limits, offer.read.aborted
                )
                if acquired:
                    left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
                    data.records = offer.read.slice_for(acquired)
                    data.acquired_records = [AcquiredRecords(*each) for each in acquired]
                    offer.share_partition.acquired()
            found.append((offer, data))
        return found

    def _finish(self, found: dict[Place, PartitionData]) -> None:
        self.cancel()
        self._done({**found, **self._answers})


def failed(index: int, error: KafkaError) -> PartitionData:
    return PartitionData(index, int(error.code), records=b"")


def _rotated(places: list[Place], session_epoch: int) -> list[Place]:
    """Another partition comes first each time, so that none starves behind a full one."""
    if len(places) <= 1 or session_epoch < 1:
        return places
    shift = session_epoch % len(places)
    return places[shift:] + places[:shift]
