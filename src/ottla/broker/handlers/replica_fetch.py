"""A follower's Fetch: everything up to the log's end, and its progress noted; woken when the log grows.

The follower must be a registered broker and send the epoch of its present incarnation (KIP-903). A request of any other
sender must not count as replication.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.fetch.sessions import FetchContext, PartitionKey
from ottla.broker.handlers.fetch import SENDFILE_FROM_BYTES, Fetch, ParkedFetch, diverging_end, read_slice
from ottla.metadata.image import BrokerRegistration
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest
from ottla.protocol.generated.fetch_response import FetchResponse, PartitionData
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane

LOOK_MS = (10, 40, 150)
"""When a follower's waiting fetch checks whether a high watermark has moved. Kafka has no such check: its followers get
the high watermark with the next records, or after replica.fetch.wait.max.ms.
"""

FIRST_EPOCH_VERSION = 15
"""The first version that carries the follower's broker epoch; an older request could come from a dead incarnation."""


def handle_replica_fetch(
    context: RequestContext[DataPlane], request: FetchRequest
) -> FetchResponse | Deferred[FetchResponse]:
    follower = _follower(context, request)
    fetch_context = context.broker.fetch_sessions.open(request, context.version, privileged=True)
    fetch = ReplicaFetch(context, request, fetch_context, follower)
    fetch.read()
    if fetch.enough or request.max_wait_ms <= 0 or not fetch_context.partitions:
        return fetch.response()
    return ParkedReplicaFetch(fetch, context, request.max_wait_ms).deferred


def _follower(context: RequestContext[DataPlane], request: FetchRequest) -> BrokerRegistration:
    if context.version < FIRST_EPOCH_VERSION:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    state = request.replica_state
    broker = context.broker.image.brokers.get(state.replica_id)
    if broker is None or state.replica_id == context.broker.node_id:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if state.replica_epoch < broker.epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    return broker


class ReplicaFetch(Fetch):
    __slots__ = ("_counts", "_follower_id", "_now_ms")

    def __init__(
        self,
        context: RequestContext[DataPlane],
        request: FetchRequest,
        fetch_context: FetchContext,
        follower: BrokerRegistration,
    ) -> None:
        super().__init__(context, request, fetch_context)
        self._follower_id = follower.id
        self._counts = request.replica_state.replica_epoch == follower.epoch
        """An incarnation that our metadata does not have yet is served, but does not count."""
        self._now_ms = 0.0

    def read(self) -> None:
        self._now_ms = self._context.broker.clock.monotonic_ms()
        super().read()

    def look_again(self, positions: Collection[int]) -> None:
        self._now_ms = self._context.broker.clock.monotonic_ms()
        super().look_again(positions)

    def has_moved(self, partition: Partition, position: int, data: PartitionData) -> bool:
        requested = self.fetch_context.partitions[position][1]
        return not data.records and partition.log.offsets.log_end_offset > requested.fetch_offset

    def _read_partition(self, key: PartitionKey, requested: FetchPartition, left: int) -> PartitionData:
        try:
            partition = self.partition(key)
            partition.require_leader(requested.current_leader_epoch)
            return self._read_replica(partition, requested, left)
        except KafkaError as error:
            return self._failed(key, error)

    def _read_replica(self, partition: Partition, requested: FetchPartition, left: int) -> PartitionData:
        log, offset = partition.log, requested.fetch_offset
        offsets = log.offsets
        data = PartitionData(requested.partition, 0, offsets.high_watermark, -1, offsets.log_start_offset, records=b"")
        data.aborted_transactions = None
        if requested.last_fetched_epoch >= 0:
            diverging = diverging_end(partition, requested)
            if diverging is not None:
                data.diverging_epoch = diverging
                self.stop = True
                return data
        if not offsets.log_start_offset <= offset <= offsets.log_end_offset:
            raise log.out_of_range(offset)
        if self._counts:
            epoch = self._request.replica_state.replica_epoch
            partition.follower_fetched(self._follower_id, epoch, offset, requested.log_start_offset, self._now_ms)
            data.high_watermark = offsets.high_watermark
        limit = min(requested.partition_max_bytes, left)
        first = self.bytes_read == 0
        if offset < offsets.log_end_offset and (limit > 0 or first) and not self._throttled(partition):
            log_slice = log.read(offset, limit, min_one_batch=first)
            if log_slice.length:
                data.records = (
                    log_slice if log_slice.length >= SENDFILE_FROM_BYTES else read_slice(partition, log_slice)
                )
        return data

    def _throttled(self, partition: Partition) -> bool:
        throttle = self._context.broker.leader_throttle
        if throttle is None or self._follower_id in partition.isr or not throttle.applies(partition):
            return False
        return throttle.exceeded()

    def response(self) -> FetchResponse:
        throttle = self._context.broker.leader_throttle
        if throttle is not None:
            for key, data in paced(self.answers, 3):
                if data.records and throttle.applies(self.partition(key)):
                    throttle.record(len(data.records))
        return super().response()


class ParkedReplicaFetch(ParkedFetch):
    """A waiting fetch of a follower, woken when the log grows. After some milliseconds (`LOOK_MS`) the fetch also
    checks whether other followers have moved a high watermark, and answers then. Under load the check costs nothing,
    because records arrive before it.
    """

    __slots__ = ("_looks", "_max_wait_ms")
    _watch = staticmethod(Partition.watch_tail)
    _unwatch = staticmethod(Partition.unwatch_tail)
    _reading_wakes_others = True
    """The position of a follower moves a high watermark, and the producer that is answered may send its next batch."""

    def __init__(self, fetch: Fetch, context: RequestContext[DataPlane], max_wait_ms: int) -> None:
        self._max_wait_ms = max_wait_ms
        self._looks = 0
        super().__init__(fetch, context, self._look_ms(0))

    def _look_ms(self, look: int) -> int:
        return min(LOOK_MS[look], self._max_wait_ms) if look < len(LOOK_MS) else self._max_wait_ms

    def _on_timeout(self) -> None:
        waited_ms = self._look_ms(self._looks)
        if waited_ms >= self._max_wait_ms or self._moved():
            super()._on_timeout()
            return
        self._looks += 1
        self._timer = self._timers.call_later(self._look_ms(self._looks) - waited_ms, self._on_timeout)

    def _moved(self) -> bool:
        """Whether a high watermark differs from the last one that the follower's session got."""
        session = self._fetch.fetch_context.session
        if session is None:
            return True  # no response had a high watermark yet
        sent = sum([cached.high_watermark for cached in session.partitions.values()])
        return sent != sum([partition.high_watermark for partition in self._partitions])
