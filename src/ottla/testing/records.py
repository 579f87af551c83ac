"""The records of a topic as a test wants them: decoded, in the order of partitions and offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.payloads.confluent import is_framed
from ottla.payloads.json_text import read_json
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.fetch_response import FetchResponse, PartitionData
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.protocol.records import BatchHeader, ControlType, iterate_batches, iterate_records
from ottla.protocol.records_build import parse_control_key
from ottla.tables.topics import READ_COMMITTED, PartitionLeader, TopicMetadata

if TYPE_CHECKING:
    from ottla.console.messages.decode import Decoder
    from ottla.protocol.records_walk import Record as WireRecord

_FETCH_BYTES = 8 << 20
_FETCH_VERSION = 12
_ANSWER_S = 10.0
_BACKOFF_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of a topic. `key` and `value` are decoded, `key_bytes` and `value_bytes` are not."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    key_bytes: bytes | None = None
    value_bytes: bytes | None = None


class Decoding:
    """Decodes with the schema of the registry, else as JSON (objects and arrays), else as text, else not at all."""

    def __init__(self, registry_url: str | None) -> None:
        self._url = registry_url
        self._decoder: Decoder | None = None

    def decode(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if self._url is not None and is_framed(data):
            decoded = self._registry(self._url).decode(data)
            if decoded.kind in {"avro", "protobuf", "json-schema"}:
                return decoded.tree
        if data[:1] in {b"{", b"["}:
            try:
                return read_json(data)
            except ValueError:
                pass
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def _registry(self, url: str) -> Decoder:
        if self._decoder is None:
            from ottla.console.messages.decode import Decoder
            from ottla.console.registry_client import ConsoleRegistry

            self._decoder = Decoder(ConsoleRegistry(url), "registry")
        return self._decoder


def read_topic(settings: ClientSettings, topic: str, *, committed: bool, decoding: Decoding) -> list[Record]:
    """All records from the first offset to the end at the time of the call."""
    isolation = READ_COMMITTED if committed else 0
    with TopicMetadata(settings, _ANSWER_S) as metadata:
        partitions = sorted(metadata.partitions([topic]))
        starts = metadata.offsets(dict.fromkeys(partitions, EARLIEST))
        ends = metadata.offsets(dict.fromkeys(partitions, LATEST), isolation_level=isolation)
        return [
            Record(
                topic=topic,
                partition=where.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp,
                key=decoding.decode(record.key),
                value=decoding.decode(record.value),
                headers=tuple(record.headers),
                key_bytes=record.key,
                value_bytes=record.value,
            )
            for where in partitions
            for record in _records(metadata, where, starts[where] or 0, ends[where] or 0, isolation)
        ]


def _records(
    metadata: TopicMetadata, where: TopicPartition, start: int, end: int, isolation: int
) -> Iterator[WireRecord]:
    position, deadline = start, time.monotonic() + _ANSWER_S
    while position < end:
        leader = metadata.partitions([where.topic])[where]
        data = None if leader is None else _fetch(metadata, leader, where, position, isolation)
        if data is None or data.error_code:
            if data is not None and not ErrorCode(data.error_code).retriable:
                raise KafkaError(ErrorCode(data.error_code))
            if time.monotonic() > deadline:
                raise TimeoutError(f"{where} could not be read at offset {position}")
            time.sleep(_BACKOFF_S)
            continue
        following = position
        for header, records in _batches(data, isolation):
            yield from (record for record in records if position <= record.offset < end)
            following = header.next_offset
        if following == position and time.monotonic() > deadline:
            raise TimeoutError(f"{where}: nothing came at offset {position}, before {end}")
        position = max(position, following)


def _fetch(
    metadata: TopicMetadata, leader: PartitionLeader, where: TopicPartition, position: int, isolation: int
) -> PartitionData | None:
    partition = FetchPartition(partition=where.partition, fetch_offset=position, partition_max_bytes=_FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=isolation,
        topics=[FetchTopic(topic=where.topic, partitions=[partition])],
    )
    deadline = time.monotonic() + _ANSWER_S
    answer = metadata.connection(leader, deadline).call(request, FetchResponse, deadline, _FETCH_VERSION)
    return next((row for topic in answer.responses for row in topic.partitions), None)


def _batches(data: PartitionData, isolation: int) -> Iterator[tuple[BatchHeader, list[WireRecord]]]:
    """The batches of an answer; without records for a control batch and for an aborted transaction."""
    buffer = memoryview(data.records) if data.records is not None else memoryview(b"")
    pending = sorted(data.aborted_transactions or (), key=lambda row: row.first_offset) if isolation else []
    aborted: set[int] = set()
    for at, header in iterate_batches(buffer):
        while pending and pending[0].first_offset <= header.last_offset:
            aborted.add(pending.pop(0).producer_id)
        if header.is_control:
            kind = parse_control_key(next(iterate_records(buffer, at)).key)[1]
            if kind == ControlType.ABORT:
                aborted.discard(header.producer_id)
            yield header, []
        elif header.is_transactional and header.producer_id in aborted:
            yield header, []
        else:
            yield header, list(iterate_records(buffer, at))


def as_snapshot(records: list[Record]) -> list[dict[str, Any]]:
    """What stays the same from run to run: key, value and headers; the partition if there are several."""
    several = len({record.partition for record in records}) > 1
    rows: list[dict[str, Any]] = []
    for record in records:
        row: dict[str, Any] = {"partition": record.partition} if several else {}
        row |= {"key": record.key, "value": record.value}
        if record.headers:
            row["headers"] = [(name, _text(value)) for name, value in record.headers]
        rows.append(row)
    return rows


def _text(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
