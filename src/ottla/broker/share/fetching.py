"""A share fetch: acquire free records of the member's partitions, or wait until there are some or the time is up.

No record is acquired or read before `min_bytes` are available. So a waiting fetch holds no records, and a change in one
partition causes no look at the other partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.share import group_limits
from ottla.broker.share.reading import read_batches
from ottla.coordinator.share.in_flight import AcquireRequest
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.share_fetch_request import ShareFetchRequest
from ottla.protocol.generated.share_fetch_response import AcquiredRecords, PartitionData

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane
    from ottla.broker.share.partition import SharePartition
    from ottla.env.seams import Timer
    from ottla.log.results import LogSlice

_RECORD_LIMIT_MODE = 1
MAX_BYTES = 8 * 1024 * 1024
"""Of one answer, which is read in one step. A member asks again for more."""
Place = tuple[Uuid, int]


class _Offer(NamedTuple):
    """What a share-partition could give."""

    place: Place
    share_partition: SharePartition
    offset: int
    log_slice: LogSlice | None
    """None: the log start offset is above the expected offset."""

    @property
    def size(self) -> int:
        return 0 if self.log_slice is None else self.log_slice.length


class ShareFetch:
    """`done` is called once, with an answer for each place that has records or an error."""

    def __init__(
        self,
        broker: SharePlane,
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
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes, MAX_BYTES)
        self._min_bytes = max(min(request.min_bytes, self._max_bytes), 1)
        self._sizes: dict[Place, int] = {}
        """While it waits: what each partition has to give."""
        self._moved: set[Place] = set()
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
        for place, share_partition in self._partitions.items():
            on_progress = partial(self._on_progress, place)
            share_partition.watch(self, on_progress)
            share_partition.partition.watch(self, on_progress)
        self._timer = self._broker.timers.call_later(request.max_wait_ms, self._on_timeout)

    def cancel(self) -> None:
        self.finished = True
        if self._timer is not None:
            self._timer.cancel()
        for share_partition in self._partitions.values():
            share_partition.unwatch(self)
            share_partition.partition.unwatch(self)

    def _on_progress(self, place: Place) -> None:
        """Looked at once per turn of the loop, after whatever woke us has been answered."""
        self._moved.add(place)
        if not self._scheduled and not self.finished:
            self._scheduled = True
            self._broker.timers.call_soon(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        moved, self._moved = self._moved, set()
        if self.finished:
            return
        for place in moved:
            self._sizes[place] = self._size(place)
        if sum(self._sizes.values()) >= self._min_bytes:
            self._try(force=False)

    def _size(self, place: Place) -> int:
        """How many bytes the partition can give at most; a failed partition counts as `min_bytes`, so that the fetch
        tries all partitions.
        """
        share_partition = self._partitions[place]
        if share_partition.error is not None:
            return self._min_bytes
        if not _is_ready(share_partition):
            return 0
        offer = self._offer(place, share_partition, self._max_bytes)
        return self._min_bytes if offer is None or offer.log_slice is None else offer.size

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
        self._sizes = {offer.place: offer.size for offer in offers}
        size = sum(self._sizes.values())
        if not force and size < self._min_bytes:
            return False
        acquired = {offer.place: data for offer, data in self._acquire(offers)}
        if not force and not any(data.acquired_records for data in acquired.values()):
            # Everything read was aborted, or gone from the log: there may be more behind it.
            self._on_progress(offers[0].place)
            return False
        self._finish(acquired)
        return True

    def _offers(self) -> list[_Offer]:
        ready = []
        for place, share_partition in self._partitions.items():
            if share_partition.error is not None:
                self._answers[place] = failed(place[1], share_partition.error)
            elif _is_ready(share_partition):
                ready.append((place, share_partition))
        offers = [
            self._offer(place, share_partition, self._max_bytes // len(ready)) for place, share_partition in ready
        ]
        return [offer for offer in offers if offer is not None]

    def _offer(self, place: Place, share_partition: SharePartition, max_bytes: int) -> _Offer | None:
        """Of a share-partition that is ready; None, and an answer, when its log fails."""
        in_flight = share_partition.in_flight
        if in_flight is None:
            return None
        offset = in_flight.next_fetch_offset
        partition = share_partition.partition
        level = self._isolation_level()
        try:
            partition.require_leader(share_partition.leader_epoch)
            log_slice = partition.read(offset, max_bytes, isolation_level=level, min_one_batch=True)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                self._answers[place] = failed(place[1], error)
                return None
            in_flight.log_start_moved(partition.log.log_start_offset)
            return _Offer(place, share_partition, offset, None)
        return _Offer(place, share_partition, offset, log_slice)

    def _isolation_level(self) -> int:
        return group_limits.isolation_level(self._broker, self._request.group_id or "")

    def _acquire(self, offers: list[_Offer]) -> list[tuple[_Offer, PartitionData]]:
        """Each partition gives something, as long as the answer has room for it; the order is another each time."""
        acquired = []
        left, left_bytes = self._request.max_records, self._max_bytes
        for offer in offers:
            data = PartitionData(offer.place[1], records=b"")
            if left > 0 and left_bytes > 0 and offer.size:
                try:
                    left -= self._acquire_of(offer, left, data)
                except KafkaError as error:
                    self._answers[offer.place] = failed(offer.place[1], error)
                    continue
                left_bytes -= len(data.records or b"")
            acquired.append((offer, data))
        return acquired

    def _acquire_of(self, offer: _Offer, max_records: int, data: PartitionData) -> int:
        """How many records were acquired."""
        request, share_partition = self._request, offer.share_partition
        in_flight, limits = share_partition.in_flight, share_partition.limits
        if in_flight is None or offer.log_slice is None:
            return 0
        # More batches than records may be locked are of no use.
        read = read_batches(
            share_partition.partition, offer.log_slice, offer.offset, self._isolation_level(), limits.max_record_locks
        )
        if not read.batches:
            return 0
        acquire_request = AcquireRequest(
            request.member_id or "",
            max_records,
            request.batch_size,
            request.share_acquire_mode == _RECORD_LIMIT_MODE,
            share_partition.lock_until_ms(),
        )
        acquired = in_flight.acquire(acquire_request, read.spans, offer.offset, limits, read.aborted)
        if acquired:
            data.records = read.slice_for(acquired)
            data.acquired_records = [AcquiredRecords(*span) for span in acquired]
            share_partition.acquired()
        return sum(span.last_offset - span.first_offset + 1 for span in acquired)

    def _finish(self, acquired: dict[Place, PartitionData]) -> None:
        self.cancel()
        self._done({**acquired, **self._answers})


def _is_ready(share_partition: SharePartition) -> bool:
    in_flight = share_partition.in_flight
    return in_flight is not None and in_flight.can_acquire(share_partition.limits)


def failed(index: int, error: KafkaError) -> PartitionData:
    return PartitionData(index, int(error.code), records=b"")


def _rotated(places: list[Place], session_epoch: int) -> list[Place]:
    """Another partition comes first each time, so that none starves behind a full one."""
    if len(places) <= 1 or session_epoch < 1:
        return places
    shift = session_epoch % len(places)
    return places[shift:] + places[:shift]
