"""Fetch: file slices of what is committed; parked while there is too little, woken by the high watermark."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred, Unfinished
from ottla.broker.fetch.session_cache import can_be_session_id
from ottla.broker.fetch.sessions import FIRST_TOPIC_ID_VERSION, FetchContext, PartitionKey
from ottla.broker.leadership import current_leader, leader_endpoints
from ottla.log.results import LogSlice
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, Uuid
from ottla.model.pace import FEW, charge, paced
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest
from ottla.protocol.generated.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.partition import READ_COMMITTED, Partition
from ottla.replication.partition_states import PartitionState

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane

SENDFILE_FROM_BYTES = 64 * 1024
"""Smaller slices are read and sent with the rest in one call; sendfile gains nothing there (docs/benchmarks.md)."""

FIRST_ANY_REPLICA_VERSION = 11
"""From here on a consumer may read from followers too (KIP-392)."""
FIRST_LEADER_HINT_VERSION = 16
_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_UNKNOWN_ERRORS = frozenset({int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID)})
_LAST = {
    int(ErrorCode.UNKNOWN_TOPIC_ID): 1,
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): 2,
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): 2,
}
"""Partitions with these errors come after all others in the response, in this order."""
_ISOLATION_LEVELS = (0, 1)
_NO_RECORDS = b""
_BYTES_OF_AN_ELEMENT = 256
"""Records that are read into memory count as elements of this size."""
_FEW_PARTITIONS = 256


def is_large(context: RequestContext[DataPlane], request: FetchRequest) -> bool:
    """A request of a few bytes may ask for all partitions of its session."""
    session_id = request.session_id
    return session_id != 0 and context.broker.fetch_sessions.size(session_id) > _FEW_PARTITIONS


def handle(context: RequestContext[DataPlane], request: FetchRequest) -> FetchResponse | Deferred[FetchResponse]:
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        from ottla.broker.handlers.replica_fetch import handle_replica_fetch

        return handle_replica_fetch(context, request)
    if not can_be_session_id(request.session_id):
        return _refused(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
    fetch_context = context.broker.fetch_sessions.open(request, context.version)
    fetch = Fetch(context, request, fetch_context)
    if request.isolation_level not in _ISOLATION_LEVELS and fetch.knows_a_partition():
        return _refused(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
    fetch.read()
    if fetch.enough or request.max_wait_ms <= 0 or not fetch_context.partitions:
        return fetch.response()
    return ParkedFetch(fetch, context, request.max_wait_ms).deferred


def _refused(context: RequestContext[DataPlane], request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Refuse the whole request; versions without topic ids carry the error for each partition too."""
    response = FetchResponse(error_code=int(code), session_id=request.session_id)
    if context.version < FIRST_TOPIC_ID_VERSION:
        response.responses = [
            FetchableTopicResponse(
                topic.topic, topic.topic_id, [_unread(item.partition, code) for item in paced(topic.partitions)]
            )
            for topic in paced(request.topics)
        ]
    return response


def _unread(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(index, int(code), -1, -1, -1, records=_NO_RECORDS)


class Fetch:
    """One reading of all partitions of a request. `read` may run again after a wait."""

    __slots__ = ("_context", "_leader_errors", "_request", "_sizes", "answers", "bytes_read", "fetch_context", "stop")

    def __init__(self, context: RequestContext[DataPlane], request: FetchRequest, fetch_context: FetchContext) -> None:
        # An answer has at most fetch.max.bytes, and a fetch does not wait for more.
        request.max_bytes = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        request.min_bytes = min(request.min_bytes, request.max_bytes)
        self._context = context
        self._request = request
        self.fetch_context = fetch_context
        self.answers: list[tuple[PartitionKey, PartitionData]] = []
        self.bytes_read = 0
        self._sizes: list[int] = []
        """Of a fetch that waits: what each partition has to give."""
        self.stop = False
        self._leader_errors: set[int] = set()

    @property
    def enough(self) -> bool:
        return self.stop or self.bytes_read >= self._request.min_bytes

    def read(self) -> None:
        self.answers = []
        self.bytes_read = 0
        left = self._request.max_bytes
        partitions = self.fetch_context.partitions
        for key, requested in partitions if len(partitions) < FEW else paced(partitions, 10):
            data = self._read_partition(key, requested, left)
            self.answers.append((key, data))
            size = len(data.records) if data.records else 0
            if size >= _BYTES_OF_AN_ELEMENT and type(data.records) is bytes:
                charge(size // _BYTES_OF_AN_ELEMENT)
            self.bytes_read += size
            left = left - size if left > size else 0

    def park(self) -> None:
        """Keep only the sizes of the records, not the records: a wait may be long."""
        if len(self.answers) > 1:  # the only partition of a fetch is read as a whole request
            self._sizes = [len(data.records or b"") for _, data in paced(self.answers)]
        self.answers = []
        self._request.topics = []
        self._request.forgotten_topics_data = []

    def has_moved(self, partition: Partition, position: int, data: PartitionData) -> bool:  # noqa: ARG002 - a follower's
        """Whether the high watermark has moved since the partition was read."""
        return partition.high_watermark != data.high_watermark

    def look_again(self, positions: Collection[int]) -> None:
        """Look only at the partitions that changed."""
        if len(positions) == len(self.fetch_context.partitions):
            self.read()
            return
        for position in positions:
            key, requested = self.fetch_context.partitions[position]
            self.bytes_read -= self._sizes[position]
            data = self._read_partition(key, requested, max(self._request.max_bytes - self.bytes_read, 0))
            self._sizes[position] = len(data.records or b"")
            self.bytes_read += self._sizes[position]

    def answer(self) -> FetchResponse:
        """After a wait."""
        if not self.answers:
            self.read()
        return self.response()

    def _read_partition(self, key: PartitionKey, requested: FetchPartition, left: int) -> PartitionData:
        try:
            if self._context.broker.authorizer is not None and not self._may_read(key):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = self.partition(key)
            epoch = requested.current_leader_epoch
            if epoch != partition.leader_epoch or partition.state is not PartitionState.LEADER:
                if self._context.version >= FIRST_ANY_REPLICA_VERSION:
                    partition.require_epoch(max(epoch, NO_LEADER_EPOCH))
                else:
                    partition.require_leader(max(epoch, NO_LEADER_EPOCH))
            return self._read_log(partition, requested, left)
        except KafkaError as error:
            return self._failed(key, error)

    def knows_a_partition(self) -> bool:
        """Whether one of the requested partitions exists: if none exists, nothing else about the request is checked."""
        for key, _ in paced(self.fetch_context.partitions, 3):
            try:
                self.partition(key)
            except KafkaError as error:
                if int(error.code) in _UNKNOWN_ERRORS:
                    continue
            return True
        return False

    def _may_read(self, key: PartitionKey) -> bool:
        from ottla.broker.authorization.data import may_read

        return may_read(self._context, key.topic, key.topic_id)

    def partition(self, key: PartitionKey) -> Partition:
        replicas = self._context.broker.replicas
        if self._context.version < FIRST_TOPIC_ID_VERSION:
            return replicas.get(key.topic, key.partition)
        partitions = replicas.by_id.get(key.topic_id)
        partition = partitions.get(key.partition) if partitions is not None else None
        return partition if partition is not None else replicas.get_by_id(key.topic_id, key.partition)

    def _read_log(self, partition: Partition, requested: FetchPartition, left: int) -> PartitionData:
        isolation_level = self._request.isolation_level
        log = partition.log
        offsets = log.offsets
        data = PartitionData(
            requested.partition,
            0,
            offsets.high_watermark,
            offsets.last_stable_offset,
            offsets.log_start_offset,
            records=_NO_RECORDS,
        )
        if isolation_level != READ_COMMITTED:
            data.aborted_transactions = None
        if requested.last_fetched_epoch >= 0 and self._diverges(partition, requested, data):
            return data
        if partition.leader_state is not None and self._request.rack_id:
            data.preferred_read_replica = self._preferred(partition, requested.fetch_offset)
            if data.preferred_read_replica >= 0:
                self.stop = True
                return data
        limit = min(left, requested.partition_max_bytes)
        first = self.bytes_read == 0
        end = data.last_stable_offset if isolation_level == READ_COMMITTED else data.high_watermark
        if limit <= 0:
            _check_unread(partition, requested.fetch_offset, end, limit)
        if limit > 0 or first:
            log_slice = log.read(requested.fetch_offset, limit, max_offset=end, min_one_batch=first)
            if log_slice.length:
                data.records = (
                    log_slice if log_slice.length >= SENDFILE_FROM_BYTES else read_slice(partition, log_slice)
                )
            if isolation_level == READ_COMMITTED:
                data.aborted_transactions = _aborted(partition, requested.fetch_offset, log_slice)
        if not data.records and left < requested.partition_max_bytes and requested.fetch_offset < end:
            self.stop = True  # the answer is full: there is more, and nothing to wait for
        return data

    def _preferred(self, partition: Partition, offset: int) -> int:
        from ottla.replication.read_replica import preferred_read_replica

        selector = self._context.broker.config.replica_selector_class
        return preferred_read_replica(partition, selector, self._request.rack_id, offset)

    def _diverges(self, partition: Partition, requested: FetchPartition, data: PartitionData) -> bool:
        """Whether the reader's log diverges from this log before its fetch offset (KIP-595); then sets the diverging
        epoch.
        """
        diverging = diverging_end(partition, requested)
        if diverging is None:
            return False
        data.diverging_epoch = diverging
        self.stop = True
        return True

    def _failed(self, key: PartitionKey, error: KafkaError) -> PartitionData:
        self.stop = True
        code = error.code
        if code is ErrorCode.UNKNOWN_TOPIC_ID and (name := self.fetch_context.known_name(key)) is not None:
            # The topic of this id was deleted while the session lasts; there may be a namesake.
            namesake = self._context.broker.image.partition(name, key.partition)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if namesake is None else ErrorCode.INCONSISTENT_TOPIC_ID
        data = _unread(key.partition, code)
        if code not in _UNKNOWN_ERRORS:
            data.aborted_transactions = None
        if error.code in _LEADER_ERRORS and self._context.version >= FIRST_LEADER_HINT_VERSION:
            leader_id, epoch = current_leader(self._context, key.topic, key.topic_id, key.partition)
            data.current_leader = LeaderIdAndEpoch(leader_id, epoch)
            self._leader_errors.add(leader_id)
        return data

    def _count(self) -> None:
        broker = self._context.broker
        metrics = broker.metrics
        if metrics is None:
            return
        for key, data in paced(self.answers):
            name = key.topic or broker.replicas.names.get(key.topic_id, "")
            if data.error_code == 0:
                metrics.fetched(self._context, name, len(data.records or b""))
            elif name in broker.replicas.by_name:
                metrics.fetch_failed(name)

    def response(self) -> FetchResponse:
        fetch_context = self.fetch_context
        if fetch_context.session is not None and fetch_context.overtaken:
            return FetchResponse(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH, fetch_context.session_id, [])
        if self._context.broker.metrics is not None:
            self._count()
        answers = self.answers
        if self.stop:  # unknown partitions come last
            answers = sorted(answers, key=lambda answer: _LAST.get(answer[1].error_code, 0))
        if fetch_context.has_session:
            answers = fetch_context.response_partitions(answers, self._context.broker.image.topics_by_id)
        topics: list[FetchableTopicResponse] = []
        last: tuple[str, Uuid] | None = None
        for key, data in answers if len(answers) < FEW else paced(answers):
            if key[:2] != last:
                last = key[:2]
                topics.append(FetchableTopicResponse(key.topic, key.topic_id, []))
            topics[-1].partitions.append(data)
        session = fetch_context.session
        response = FetchResponse(0, 0, 0 if session is None else session.id, topics)
        if self._leader_errors:
            response.node_endpoints = leader_endpoints(self._context, self._leader_errors, NodeEndpoint)
        return response


def _check_unread(partition: Partition, offset: int, end: int, limit: int) -> None:
    """Refuse an invalid offset or limit, even if the fetch will read nothing."""
    log = partition.log
    if not log.offsets.log_start_offset <= offset <= log.offsets.log_end_offset:
        raise log.out_of_range(offset)
    if limit < 0 and offset < end:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A fetch cannot be of less than 0 bytes")


def diverging_end(partition: Partition, requested: FetchPartition) -> EpochEndOffset | None:
    """Where the reader's log diverges from this log; None when it does not diverge before its fetch offset."""
    epoch, end_offset = partition.end_offset_for_epoch(requested.last_fetched_epoch)
    if end_offset < 0 or epoch < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"Where epoch {requested.last_fetched_epoch} ends is not known here"
        )
    if epoch >= requested.last_fetched_epoch and end_offset >= requested.fetch_offset:
        return None
    return EpochEndOffset(epoch, end_offset)


def read_slice(partition: Partition, log_slice: LogSlice) -> bytes:
    """The bytes of a slice that is not empty."""
    try:
        return log_slice.file.pread(log_slice.length, log_slice.position)
    except OSError as error:
        raise partition.log.log_dir.storage_error(error) from error


def _aborted(partition: Partition, offset: int, log_slice: LogSlice) -> list[AbortedTransaction]:
    if log_slice.length == 0:
        return []
    return [AbortedTransaction(t.producer_id, t.first_offset) for t in partition.log.aborted.within(log_slice, offset)]


class ParkedFetch:
    """A fetch that waits: look at a partition again after its high watermark moved; answer when there is enough or the
    time is up.
    """

    __slots__ = ("_context", "_fetch", "_moved_on", "_partitions", "_scheduled", "_timer", "_timers", "deferred")
    _watch = staticmethod(Partition.watch)
    _unwatch = staticmethod(Partition.unwatch)
    _reading_wakes_others: ClassVar = False
    """Whether other requests may be handled between the read of a partition and its watch."""

    def __init__(self, fetch: Fetch, context: RequestContext[DataPlane], max_wait_ms: int) -> None:
        self._fetch = fetch
        self._context = context
        self._timers = context.broker.timers
        self._scheduled = True  # not before everything is watched, which may take several slices
        self._moved_on: set[int] = set()
        self.deferred: Deferred[FetchResponse] = Deferred(self._leave)
        self._partitions: list[Partition] = []
        answers = fetch.answers
        may_have_moved = self._reading_wakes_others or context.is_large or len(answers) >= FEW
        try:
            for position, (key, data) in enumerate(answers if len(answers) < FEW else paced(answers)):
                partition = fetch.partition(key)
                self._partitions.append(partition)
                self._watch(partition, self, partial(self._on_progress, position))
                if may_have_moved and fetch.has_moved(partition, position, data):  # since it was read
                    self._moved_on.add(position)
        except Exception:  # too many elements, or a topic that was deleted between two slices
            self._unwatch_all()
            raise
        fetch.park()
        self._timer = self._timers.call_later(max_wait_ms, self._on_timeout)  # not before, slices may take longer
        self._scheduled = bool(self._moved_on)
        if self._scheduled:
            self._timers.call_soon(self._try)

    def _leave(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:  # as `_unwatch_all`, without its call
            self._unwatch(partition, self)

    def _unwatch_all(self) -> None:
        for partition in self._partitions:
            self._unwatch(partition, self)

    def _on_progress(self, position: int) -> None:
        """Looked at once per turn of the loop, after the append that woke us has been answered."""
        self._moved_on.add(position)
        if not self._scheduled:
            self._scheduled = True
            self._timers.call_soon(self._try)

    def _try(self) -> None:
        self._scheduled = False
        if self.deferred.done:
            return
        moved_on, self._moved_on = self._moved_on, set()
        try:
            self._fetch.look_again(moved_on)
            if self._fetch.enough:
                self._finish()
            elif self._fetch.answers:
                self._fetch.park()
        except Exception as error:  # noqa: BLE001 - a bug: the peer must not wait for this answer for ever
            self._fail(error)

    def _on_timeout(self) -> None:
        if not self.deferred.done:
            self._fetch.answers = []
            try:
                self._finish()
            except Exception as error:  # noqa: BLE001 - as in `_try`
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._leave()
        self.deferred.fail(error)

    def _finish(self) -> None:
        self._leave()
        answer = self._fetch.response if self._fetch.answers else self._fetch.answer
        self.deferred.resolve(Unfinished(answer) if self._context.is_large else answer())
