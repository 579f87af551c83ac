"""A range of one partition, fetched from its leader as raw batches and decoded in bulk.

While one answer is decoded, the next request is already sent, so broker and reader work at the same time. After a
leader change, a broker restart or a broken connection, the read is retried from the last offset until the deadline;
nothing is yielded twice. Deleted offsets are an error unless `fail_on_data_loss` is off.

A plan with a topic id reads that topic only: records of a topic that was created again under the same name are never
yielded. A new leader may answer with a high watermark that is too low, so the end of a log counts only when ListOffsets
confirms the end (KIP-207).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from ottla.client.connection import BrokerConnection
from ottla.client.errors import ClientError
from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_str
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.fetch_response import AbortedTransaction, FetchResponse, PartitionData
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.protocol.records import BatchHeader, ControlType, crc_matches, iterate_batches, iterate_records
from ottla.protocol.records_build import parse_control_key
from ottla.tables.decode import Chunk, decode_chunk
from ottla.tables.topics import READ_COMMITTED, LedPartition, TableError, TopicMetadata

CHUNK_BYTES = 16 << 20
"""Unpacked bytes that are decoded together, plus at most one batch."""
_FETCH_BY_NAME, _FETCH_BY_ID = 12, 13
"""Versions of Fetch: from 13 on a request names topics by id (KIP-516)."""
_RECEIVE_BUFFER_BYTES = 4 << 20
_BACKOFF_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """The range to read: offsets `start` <= o < `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    isolation_level: int = 0
    with_headers: bool = False
    milliseconds: bool = False
    """Timestamps as the log has them, in MILLISECONDS_TYPE: no value overflows."""
    fail_on_data_loss: bool = True
    fetch_bytes: int = 8 << 20
    timeout_s: float = 60.0
    topic_id: str = ""
    """Only the topic with this id is read; empty reads whichever topic has the name."""
    leader_epoch: int = -1
    """The leader's epoch when `end` was listed; -1 checks no truncation."""
    skip_recreated: bool = False
    """A topic with a different id ends the read, instead of TopicRecreated."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class TopicRecreated(TableError):
    """The topic of a position was deleted and created again: its offsets name other records now."""


def recreated_error(topic: str, known_id: str, present_id: str) -> TopicRecreated:
    return TopicRecreated(
        f"topic {topic} has the id {present_id}, the stored position belongs to the id {known_id}: the topic was deleted "
        "and created again, or this is a different cluster. Start again with a new checkpoint (ottla pipeline reset), or "
        "set onTopicRecreated (connectors: on.topic.recreated) to restart to read the new topic from its beginning"
    )


def read_range(settings: ClientSettings, plan: FetchPlan) -> Iterator[pa.RecordBatch]:
    """Batches of `ottla.tables.decode.SCHEMA`, in the order of offsets."""
    position = plan.start
    deadline = time.monotonic() + plan.timeout_s
    while position < plan.end:
        stream = _Stream(settings, replace(plan, start=position))
        try:
            for batch in stream.batches():
                if batch.num_rows:
                    yield batch
                deadline = time.monotonic() + plan.timeout_s
        except TopicRecreated:
            if not plan.skip_recreated:
                raise
            return
        except (ClientError, _TryAgain, OSError) as problem:
            if time.monotonic() > deadline:
                raise TableError(
                    f"{plan.topic_partition} could not be read at offset {position} for {plan.timeout_s:.0f} s: {problem}"
                ) from problem
            time.sleep(_BACKOFF_S)
        else:
            return
        finally:
            position = max(position, stream.position)
            stream.close()


class _TryAgain(Exception):
    """A temporary failure: the partition has no leader, the leader has moved, or the answer has no partition."""


class _Stream:
    """One connection to the leader with one request ahead; ends when the plan is read or with an exception."""

    def __init__(self, settings: ClientSettings, plan: FetchPlan) -> None:
        self._settings = settings
        self._plan = plan
        self.position = plan.start
        """Everything before it was given out."""
        self._connection: BrokerConnection | None = None
        self._state = LedPartition(leader=None, topic_id="", leader_epoch=-1)
        self._version = _FETCH_BY_NAME

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Ends when everything before the plan's end was yielded."""
        connection = self._connection = self._leader()
        plan = self._plan
        if self.position >= plan.end:
            return
        self._send(connection, self.position)
        progress = time.monotonic()
        while True:
            answer = self._receive(connection)
            if answer.error_code:
                self._moved(answer)
                if self.position >= plan.end:
                    return
                self._send(connection, self.position)
                continue
            records = memoryview(answer.records) if answer.records is not None else memoryview(b"")
            following, batches = self._sorted(answer, records)
            if following > self.position:
                progress = time.monotonic()
            elif time.monotonic() - progress > plan.timeout_s:
                raise TableError(f"{plan.topic_partition}: nothing came at offset {self.position}, before {plan.end}")
            if following == self.position and answer.high_watermark < plan.end and self._ends_early():
                self.position = plan.end
                return
            if following < plan.end:
                self._send(connection, following)
            for chunk in _chunks(records, batches):
                last = chunk.headers[-1].next_offset
                batch = decode_chunk(
                    chunk,
                    plan.topic,
                    plan.partition,
                    plan.start,
                    plan.end,
                    with_headers=plan.with_headers,
                    milliseconds=plan.milliseconds,
                )
                self.position = min(max(self.position, last), plan.end)
                yield batch
            self.position = min(max(self.position, following), plan.end)
            if following >= plan.end:
                return

    def _sorted(self, answer: PartitionData, records: memoryview) -> tuple[int, list[tuple[int, BatchHeader]]]:
        """The next offset to fetch, and the batches with records to yield."""
        plan, following = self._plan, self.position
        batches: list[tuple[int, BatchHeader]] = []
        filter_aborted = plan.isolation_level == READ_COMMITTED
        aborted = _Aborted(answer.aborted_transactions or []) if filter_aborted else None
        for at, header in iterate_batches(records):
            if header.base_offset >= plan.end:
                following = plan.end
                break
            if header.last_offset < self.position:
                continue
            following = header.next_offset
            if not crc_matches(records, at, header.size):
                raise TableError(f"{plan.topic_partition}: the batch at offset {header.base_offset} has a wrong CRC")
            if aborted is not None and aborted.drops(records, at, header):
                continue
            if header.is_control or header.record_count == 0:
                continue
            batches.append((at, header))
        return following, batches

    def _moved(self, answer: PartitionData) -> None:
        """Handle an error answer: set the offset to continue from, or raise."""
        plan, code = self._plan, ErrorCode(answer.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = max(answer.log_start_offset, self._listed(EARLIEST))
            if start > self.position:
                self._lost(f"offset {self.position} is gone: the log starts at {start}")
                self.position = min(start, plan.end)
            elif self._ends_early():
                self.position = plan.end
            else:
                raise _TryAgain(code.message)
            return
        if code.retriable:
            raise _TryAgain(code.message)
        raise TableError(f"{plan.topic_partition}: {code.message}")

    def _ends_early(self) -> bool:
        """Whether the log ends before the plan does, by ListOffsets: a new leader refuses that until it is certain."""
        end = self._listed(LATEST)
        if end < self._plan.end:
            self._lost(f"the log ends at {end}, before offset {self._plan.end}")
        return end < self._plan.end

    def _listed(self, place: int) -> int:
        partition = self._plan.topic_partition
        with TopicMetadata(self._settings, self._plan.timeout_s) as metadata:
            self._same_topic(metadata)
            return metadata.offsets({partition: place})[partition] or 0

    def _lost(self, what: str) -> None:
        if self._plan.fail_on_data_loss:
            raise TableError(
                f"{self._plan.topic_partition}: {what}. Records were deleted, or the topic was created again; set failOnDataLoss to false to continue with the remaining records"
            )

    def _leader(self) -> BrokerConnection:
        plan = self._plan
        with TopicMetadata(self._settings, plan.timeout_s) as metadata:
            self._state = self._same_topic(metadata)
            self._check_truncation(metadata)
        leader = self._state.leader
        if leader is None:
            raise _TryAgain(f"{plan.topic_partition} has no leader")
        deadline = time.monotonic() + plan.timeout_s
        connection = BrokerConnection(leader.host, leader.port, self._settings, deadline)
        connection.enlarge_receive_buffer(_RECEIVE_BUFFER_BYTES)
        by_id = _has_id(plan.topic_id) and connection.usable_version(FetchRequest.API_KEY, _FETCH_BY_ID) == _FETCH_BY_ID
        self._version = _FETCH_BY_ID if by_id else _FETCH_BY_NAME
        return connection

    def _same_topic(self, metadata: TopicMetadata) -> LedPartition:
        """The partition's state. Raises TopicRecreated if the topic is not the topic of the plan."""
        plan = self._plan
        states = metadata.states([plan.topic])
        if plan.topic_partition not in states:
            raise TableError(f"{plan.topic_partition} does not exist: the topic has {len(states)} partitions")
        state = states[plan.topic_partition]
        if plan.topic_id and state.topic_id != plan.topic_id:
            raise recreated_error(plan.topic, plan.topic_id, state.topic_id)
        return state

    def _check_truncation(self, metadata: TopicMetadata) -> None:
        """After a leader change: the new leader's log still has the range in the epoch in which it was listed."""
        plan = self._plan
        if plan.leader_epoch < 0 or self._state.leader_epoch == plan.leader_epoch:
            return
        end = metadata.epoch_ends({plan.topic_partition: plan.leader_epoch})[plan.topic_partition]
        if 0 <= end < plan.end:
            self._lost(f"a new leader cut the log at {end}, before offset {plan.end}")
            self._plan = replace(plan, end=max(end, self.position))

    def _send(self, connection: BrokerConnection, offset: int) -> None:
        plan = self._plan
        partition = FetchPartition(
            partition=plan.partition,
            current_leader_epoch=self._state.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=plan.fetch_bytes,
        )
        topic_id = uuid_from_str(plan.topic_id) if self._version == _FETCH_BY_ID else ZERO_UUID
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=plan.fetch_bytes,
            isolation_level=plan.isolation_level,
            topics=[FetchTopic(topic=plan.topic, topic_id=topic_id, partitions=[partition])],
        )
        connection.send(request, self._version, time.monotonic() + plan.timeout_s)

    def _receive(self, connection: BrokerConnection) -> PartitionData:
        answer = connection.receive(FetchResponse, self._version, time.monotonic() + self._plan.timeout_s)
        if answer.error_code:
            raise _TryAgain(ErrorCode(answer.error_code).message)
        for topic in answer.responses:
            for partition in topic.partitions:
                return partition
        raise _TryAgain("the answer has no partition")


def _has_id(topic_id: str) -> bool:
    return bool(topic_id) and ":" not in topic_id


def _chunks(records: memoryview, batches: list[tuple[int, BatchHeader]]) -> Iterator[Chunk]:
    """Decompress one chunk at a time: a fetch of small batches may unpack to a thousand times its size."""
    chunk = Chunk()
    for at, header in batches:
        chunk.add(records, at, header)
        if chunk.size >= CHUNK_BYTES:
            yield chunk
            chunk = Chunk()
    if chunk.headers:
        yield chunk


class _Aborted:
    """Which batches of one answer belong to aborted transactions (the consumer's own algorithm)."""

    def __init__(self, transactions: list[AbortedTransaction]) -> None:
        self._coming = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
        self._producers: set[int] = set()

    def drops(self, records: memoryview, at: int, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        if header.producer_id not in self._producers or not header.is_transactional:
            return False
        if header.is_control:
            if is_abort(records, at):
                self._producers.discard(header.producer_id)
            return False
        return True


def is_abort(records: memoryview, at: int) -> bool:
    try:
        marker = next(iter(iterate_records(records, at)))
        return parse_control_key(marker.key)[1] == ControlType.ABORT
    except (StopIteration, KafkaError):
        return False
