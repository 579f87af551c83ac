"""A reader over our own wire client, with the calls of confluent_kafka.Consumer that the console makes.

librdkafka cannot log in with a delegation token, so the console reads with this class when it acts as a user. One
request to each leader at a time, one thread, bounded by `_FETCH_BYTES` and what one batch unpacks to.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ottla.client.errors import ClientError
from ottla.client.librdkafka_errors import LocalError
from ottla.client.settings import ClientSettings
from ottla.console.errors import ConsoleError
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.fetch_response import FetchResponse, PartitionData
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.protocol.records import LOG_APPEND_TIME, crc_matches, iterate_batches, iterate_records
from ottla.tables.topics import PartitionLeader, TableError, TopicMetadata

_FETCH_BYTES = 4 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024
_FETCH_VERSION = 12
_WAIT_MS = 100
_ANSWER_S = 10.0
_AGAIN_S = 0.1
_FORBIDDEN = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class _Error:
    """As confluent_kafka.KafkaError: the end of a partition is an event too."""

    number: int
    words: str

    def code(self) -> int:
        return self.number

    def str(self) -> str:
        return self.words

    def retriable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class WireMessage:
    """As confluent_kafka.Message."""

    _where: TopicPartition
    _offset: int
    _timestamp: tuple[int, int] = (0, -1)
    _key: bytes | None = None
    _value: bytes | None = None
    _headers: tuple[tuple[str, bytes | None], ...] = ()
    _error: _Error | None = None

    def error(self) -> _Error | None:
        return self._error

    def topic(self) -> str:
        return self._where.topic

    def partition(self) -> int:
        return self._where.partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._headers


class WireReader:
    def __init__(self, settings: ClientSettings) -> None:
        self._metadata = TopicMetadata(settings, _ANSWER_S)
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._ended: set[TopicPartition] = set()
        self._leaders: dict[TopicPartition, PartitionLeader | None] = {}
        self._ready: deque[WireMessage] = deque()

    def close(self) -> None:
        self._metadata.close()

    # What a topic has

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        try:
            leaders = self._metadata.partitions([topic])
        except TableError as error:
            raise _console_error(error) from error
        rows = {
            where.partition: SimpleNamespace(leader=-1 if leader is None else leader.node_id)
            for where, leader in leaders.items()
        }
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=rows)})

    def get_watermark_offsets(self, where: Any, timeout: float) -> tuple[int, int]:
        del timeout
        partition = TopicPartition(where.topic, where.partition)
        return self._offset(partition, EARLIEST), self._offset(partition, LATEST)

    def offsets_for_times(self, time_queries: list[Any], timeout: float) -> list[Any]:
        del timeout
        timestamps = {TopicPartition(query.topic, query.partition): query.offset for query in time_queries}
        try:
            offsets = self._metadata.offsets(timestamps)
        except TableError as error:
            raise _console_error(error) from error
        return [
            SimpleNamespace(partition=where.partition, offset=-1 if offset is None else offset)
            for where, offset in offsets.items()
        ]

    def _offset(self, where: TopicPartition, place: int) -> int:
        try:
            return self._metadata.offsets({where: place})[where] or 0
        except TableError as error:
            raise _console_error(error) from error

    # Reading

    def assign(self, places: Iterable[Any]) -> None:
        self._positions = {TopicPartition(place.topic, place.partition): place.offset for place in places}
        self._paused.clear()
        self._ended.clear()
        self._ready.clear()

    def pause(self, places: Iterable[Any]) -> None:
        self._paused |= {TopicPartition(place.topic, place.partition) for place in places}

    def consume(self, count: int, timeout_s: float) -> list[WireMessage]:
        deadline = time.monotonic() + timeout_s
        while not self._ready and self._positions.keys() - self._paused:
            self._fetch()
            if time.monotonic() >= deadline:
                break
        if not self._ready and time.monotonic() < deadline:
            time.sleep(max(0.0, min(_AGAIN_S, deadline - time.monotonic())))
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def _fetch(self) -> None:
        readable = sorted(self._positions.keys() - self._paused)
        try:
            if any(self._leaders.get(where) is None for where in readable):
                self._leaders = self._metadata.partitions({where.topic for where in readable})
            by_leader: dict[PartitionLeader, list[TopicPartition]] = {}
            for where in readable:
                leader = self._leaders.get(where)
                if leader is not None:
                    by_leader.setdefault(leader, []).append(where)
            for leader, partitions in by_leader.items():
                self._fetch_from(leader, partitions)
        except TableError as error:
            raise _console_error(error) from error
        except ClientError:  # a broker went away: its partitions soon have a new leader
            self._metadata.close()
            self._leaders.clear()
            time.sleep(_AGAIN_S)

    def _fetch_from(self, leader: PartitionLeader, partitions: list[TopicPartition]) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        for where in partitions:
            row = FetchPartition(
                partition=where.partition, fetch_offset=self._positions[where], partition_max_bytes=_PARTITION_BYTES
            )
            topics.setdefault(where.topic, []).append(row)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=_FETCH_BYTES,
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        )  # fmt: skip
        deadline = time.monotonic() + _ANSWER_S
        answer = self._metadata.connection(leader, deadline).call(request, FetchResponse, deadline, _FETCH_VERSION)
        for topic in answer.responses:
            for partition_data in topic.partitions:
                self._take(TopicPartition(topic.topic, partition_data.partition_index), partition_data)

    def _take(self, where: TopicPartition, partition_data: PartitionData) -> None:
        if partition_data.error_code:
            self._failed(where, ErrorCode(partition_data.error_code))
            return
        records = memoryview(partition_data.records) if partition_data.records is not None else memoryview(b"")
        position = self._positions[where]
        for at, header in iterate_batches(records):
            if header.last_offset < position:
                continue
            if not crc_matches(records, at, header.size):
                raise ConsoleError(f"{where}: the batch at offset {header.base_offset} has a wrong CRC", status=503)
            if not header.is_control:
                kind = 2 if header.timestamp_type == LOG_APPEND_TIME else 1
                self._ready += [
                    WireMessage(
                        where, record.offset, (kind, record.timestamp), record.key, record.value, tuple(record.headers)
                    )
                    for record in iterate_records(records, at)
                    if record.offset >= position
                ]
            position = header.next_offset
        if (
            position == self._positions[where]
            and position >= partition_data.high_watermark
            and where not in self._ended
        ):
            self._ended.add(where)
            self._ready.append(WireMessage(where, position, _error=_Error(LocalError.PARTITION_EOF, "end")))
        elif position > self._positions[where]:
            self._ended.discard(where)
        self._positions[where] = position

    def _failed(self, where: TopicPartition, code: ErrorCode) -> None:
        if code in _FORBIDDEN:
            raise ConsoleError(f"you may not read {where.topic}: {code.message}", status=403)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:  # expired while it was read; as auto.offset.reset=earliest
            self._positions[where] = max(self._offset(where, EARLIEST), 0)
            return
        if not code.retriable:
            raise ConsoleError(f"reading {where} failed: {code.message}", status=503)
        self._leaders.pop(where, None)
        time.sleep(_AGAIN_S)


def _console_error(error: TableError) -> ConsoleError:
    words = str(error)
    status = 403 if "authoriz" in words.lower() else 404 if "does not exist" in words else 503
    return ConsoleError(words, status=status)
