"""The records of a topic, decoded, in the order of partitions and offsets: no Arrow, an object for each record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, cast

from ottla.client.errors import ClientError
from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.payloads.confluent import is_framed, unframed
from ottla.payloads.json_text import read_json
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.fetch_response import FetchResponse, PartitionData
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.protocol.records import BatchHeader, ControlType, iterate_batches, iterate_records
from ottla.protocol.records_build import parse_control_key
from ottla.tables.topics import READ_COMMITTED, PartitionLeader, TableError, TopicMetadata

if TYPE_CHECKING:
    from ottla.console.messages.decode import Decoded, Decoder
    from ottla.console.registry_client import ConsoleRegistry
    from ottla.protocol.records_walk import Record as WireRecord

_FETCH_BYTES = 8 << 20
_FETCH_VERSION = 12
_ANSWER_S = 10.0
_BACKOFF_S = 0.05
_WAIT_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecord:
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
        self._registry: ConsoleRegistry | None = None

    def decode(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if self._url is not None and is_framed(data):
            decoded = self._with_schema(self._url, data)
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

    def _with_schema(self, url: str, data: bytes) -> Decoded:
        """Raises TableError if the registry does not answer: without their schema, encoded values look like text."""
        from ottla.console.errors import ConsoleError
        from ottla.console.messages.decode import Decoder
        from ottla.console.registry_client import ConsoleRegistry

        if self._registry is None or self._decoder is None:
            self._registry = ConsoleRegistry(url)
            self._decoder = Decoder(self._registry, "registry")
        try:
            self._registry.schema(unframed(data)[0])
        except ConsoleError as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise TableError(f"the schema of a record cannot be read: {refusal}") from refusal
        return self._decoder.decode(data)


class RecordReader:
    """Reads a topic through the leaders of its partitions. Not for several threads at once."""

    def __init__(self, settings: ClientSettings, topic: str, decoding: Decoding, *, committed: bool = True) -> None:
        self.topic = topic
        self._decoding = decoding
        self._isolation = READ_COMMITTED if committed else 0
        self._metadata = TopicMetadata(settings, _ANSWER_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._metadata.close()

    def partitions(self) -> list[int]:
        return sorted(where.partition for where in self._metadata.partitions([self.topic]))

    def offsets(self, at: int) -> dict[int, int]:
        """The offset in each partition of EARLIEST, LATEST, or of the first record at or after a time in ms."""
        places = dict.fromkeys(self._metadata.partitions([self.topic]), at)
        offsets = self._metadata.offsets(places, isolation_level=self._isolation)
        missing = [where for where, offset in offsets.items() if offset is None]
        if missing:  # no record is as new as the time
            offsets |= self._metadata.offsets(dict.fromkeys(missing, LATEST), isolation_level=self._isolation)
        return {where.partition: offset or 0 for where, offset in offsets.items()}

    def between(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[DecodedRecord]:
        """Partition after partition: the records with start <= offset < end. A deleted start means the first record."""
        first = self.offsets(EARLIEST)
        for partition in sorted(starts):
            position, end = max(starts[partition], first.get(partition, 0)), ends.get(partition, 0)
            deadline = time.monotonic() + _ANSWER_S
            while position < end:
                records, following = self._step({partition: position})
                yield from (record for record in records if record.offset < end)
                if following[partition] > position:
                    position, deadline = following[partition], time.monotonic() + _ANSWER_S
                elif time.monotonic() > deadline:
                    raise TableError(f"{self.topic}-{partition}: nothing came at offset {position}, before {end}")

    def poll(self, positions: dict[int, int]) -> list[DecodedRecord]:
        """The next records of each partition, after a wait of at most half a second; moves `positions`."""
        records, following = self._step(positions)
        positions.update(following)
        return records

    def _step(self, positions: Mapping[int, int]) -> tuple[list[DecodedRecord], dict[int, int]]:
        """The records of one fetch from each leader, and the positions behind them."""
        following = dict(positions)
        records: list[DecodedRecord] = []
        try:
            leaders = self._metadata.partitions([self.topic])
            places = {TopicPartition(self.topic, partition): offset for partition, offset in positions.items()}
            for leader in {leaders.get(where) for where in places} - {None}:
                own = {where: offset for where, offset in places.items() if leaders.get(where) == leader}
                for data in self._fetch(cast("PartitionLeader", leader), own):
                    records += self._taken(data, following)
        except ClientError:  # a node went away: the next step asks its successor
            self._metadata.close()
            time.sleep(_BACKOFF_S)
        return records, following

    def _fetch(self, leader: PartitionLeader, places: Mapping[TopicPartition, int]) -> list[PartitionData]:
        rows = [
            FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
            for where, offset in places.items()
        ]
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=self.topic, partitions=rows)],
        )
        deadline = time.monotonic() + _ANSWER_S
        answer = self._metadata.connection(leader, deadline).call(request, FetchResponse, deadline, _FETCH_VERSION)
        return [row for topic in answer.responses for row in topic.partitions]

    def _taken(self, data: PartitionData, following: dict[int, int]) -> list[DecodedRecord]:
        partition = data.partition_index
        position = following[partition]
        code = ErrorCode(data.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:  # deleted while the reader was behind, or behind the end
            following[partition] = max(self.offsets(EARLIEST).get(partition, 0), position)
            if following[partition] == position:
                time.sleep(_WAIT_MS / 1000)
            return []
        if code != ErrorCode.NONE:
            if not code.retriable:
                raise TableError(f"{self.topic}-{partition}: {code.message}")
            time.sleep(_BACKOFF_S)
            return []
        records: list[DecodedRecord] = []
        for header, batch in _batches(data, self._isolation):
            records += [self._record(partition, record) for record in batch if record.offset >= position]
            following[partition] = max(header.next_offset, position)
        return records

    def _record(self, partition: int, record: WireRecord) -> DecodedRecord:
        return DecodedRecord(
            topic=self.topic,
            partition=partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=self._decoding.decode(record.key),
            value=self._decoding.decode(record.value),
            headers=tuple(record.headers),
            key_bytes=record.key,
            value_bytes=record.value,
        )


def read_topic(settings: ClientSettings, topic: str, *, committed: bool, decoding: Decoding) -> list[DecodedRecord]:
    """All records from the first offset to the end at the time of the call."""
    with RecordReader(settings, topic, decoding, committed=committed) as reader:
        return list(reader.between(reader.offsets(EARLIEST), reader.offsets(LATEST)))


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
