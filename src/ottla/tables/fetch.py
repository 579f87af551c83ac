"""A range of one partition, fetched from its leader as raw batches and decoded in bulk.

While one answer is decoded, the next request is already sent, so broker and reader work at the same time. After a
leader change, a broker restart or a broken connection, the read is retried from the last offset until the deadline;
nothing is yielded twice. Deleted offsets are an error unless `fail_on_data_loss` is off.
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
from ottla.model.ids import TopicPartition
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.fetch_response import AbortedTransaction, FetchResponse, PartitionData
from ottla.protocol.records import BatchHeader, ControlType, crc_matches, iterate_batches, iterate_records
from ottla.protocol.records_build import parse_control_key
from ottla.tables.decode import Chunk, decode_chunk
from ottla.tables.topics import READ_COMMITTED, TableError, TopicMetadata

CHUNK_BYTES = 16 << 20
"""Unpacked bytes that are decoded together, plus at most one batch."""
_FETCH_VERSION = 12
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
    fail_on_data_loss: bool = True
    fetch_bytes: int = 8 << 20
    timeout_s: float = 60.0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def read_range(settings: ClientSettings, plan: FetchPlan) -> Iterator[pa.RecordBatch]:
    """Batches of `ottla.tables.decode.SCHEMA`, in the order of offsets."""
    position = plan.start
    deadline = time.monotonic() + plan.timeout_s
    while position < plan.end:
        stream = _Stream(settings, replace(plan, start=position))
        try:
            for batch in stream:
                if batch.num_rows:
                    yield batch
                deadline = time.monotonic() + plan.timeout_s
        except (ClientError, _TryAgain, OSError) as problem:
            if time.monotonic() > deadline:
                raise TableError(
                    f"{plan.topic_partition} could not be read at offset {position} for {plan.timeout_s:.0f} s: {problem}"
                ) from problem
            time.sleep(_BACKOFF_S)
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

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        connection = self._connection = self._leader()
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
            if following == self.position and answer.high_watermark < plan.end:
                self._lost(f"the log ends at {answer.high_watermark}, before offset {plan.end}")
                self.position = plan.end
                return
            if following < plan.end:
                self._send(connection, following)
            for chunk in _chunks(records, batches):
                last = chunk.headers[-1].next_offset
                batch = decode_chunk(
                    chunk, plan.topic, plan.partition, plan.start, plan.end, with_headers=plan.with_headers
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
            start = answer.log_start_offset
            if start <= self.position:
                with TopicMetadata(self._settings) as metadata:
                    start = metadata.offsets({plan.topic_partition: -2})[plan.topic_partition] or 0
            self._lost(f"offset {self.position} is gone: the log starts at {start}")
            self.position = plan.end if start <= self.position else min(start, plan.end)
            return
        if code.retriable:
            raise _TryAgain(code.message)
        raise TableError(f"{plan.topic_partition}: {code.message}")

    def _lost(self, what: str) -> None:
        if self._plan.fail_on_data_loss:
            raise TableError(
                f"{self._plan.topic_partition}: {what}. Records were deleted or the topic was made anew; "
                "set failOnDataLoss to false to go on with what is there"
            )

    def _leader(self) -> BrokerConnection:
        partition = self._plan.topic_partition
        with TopicMetadata(self._settings, self._plan.timeout_s) as metadata:
            leaders = metadata.partitions([partition.topic])
        if partition not in leaders:
            raise TableError(f"{partition} does not exist: the topic has {len(leaders)} partitions")
        leader = leaders[partition]
        if leader is None:
            raise _TryAgain(f"{partition} has no leader")
        deadline = time.monotonic() + self._plan.timeout_s
        connection = BrokerConnection(leader.host, leader.port, self._settings, deadline)
        connection.enlarge_receive_buffer(_RECEIVE_BUFFER_BYTES)
        return connection

    def _send(self, connection: BrokerConnection, offset: int) -> None:
        plan = self._plan
        partition = FetchPartition(partition=plan.partition, fetch_offset=offset, partition_max_bytes=plan.fetch_bytes)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=plan.fetch_bytes,
            isolation_level=plan.isolation_level,
            topics=[FetchTopic(topic=plan.topic, partitions=[partition])],
        )
        connection.send(request, _FETCH_VERSION, time.monotonic() + plan.timeout_s)

    def _receive(self, connection: BrokerConnection) -> PartitionData:
        answer = connection.receive(FetchResponse, _FETCH_VERSION, time.monotonic() + self._plan.timeout_s)
        if answer.error_code:
            raise _TryAgain(ErrorCode(answer.error_code).message)
        for topic in answer.responses:
            for partition in topic.partitions:
                return partition
        raise _TryAgain("the answer has no partition")


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
