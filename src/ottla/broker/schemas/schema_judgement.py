"""The records of one batch held against their schemas: what a worker thread does for validation at the log.

Nothing here touches a partition or the loop. A batch is refused as a whole (`InvalidRecords.failure`) if it cannot be read,
takes too long, or its schema fails in an unforeseen way. A batch that could not be checked is never appended.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.env.logging import get_logger
from ottla.log.validation import ValidatedBatches, validate_produce
from ottla.log.validation_records import RecordError, RecordValidationError, iterate_spans
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.payloads.confluent import KEY_HEADER, VALUE_HEADER, SchemaFramingError, guid_in_header, unframed
from ottla.protocol.records import (
    HEADER_BYTES,
    MAGIC_V2,
    Record,
    assemble_batch,
    batch_payload,
    crc_matches,
    iterate_records,
    parse_header,
)

if TYPE_CHECKING:
    from ottla.env.config import TopicConfig

log = get_logger(__name__)
QUARANTINE = "quarantine"
_MAX_NAMED = 100
"""Records that an answer names; the others of a batch are counted only."""
MAX_LOADED = 50
"""Schemas that one request makes the broker ask the registry for. Records can name a new one each."""
MAX_PUT_ASIDE_BYTES = 16 * 1024 * 1024
"""Of one batch: a small batch decompresses to many records, and each gets headers of its own in the quarantine topic."""
_RECORD_OVERHEAD = 200


class SchemaKey(NamedTuple):
    """How a record names its schema: an id within a context of the registry, or a guid, which is unique in all."""

    context: str
    id: int | str


class NotLoaded(Exception):
    """A schema that is not ready yet."""

    def __init__(self, key: SchemaKey) -> None:
        super().__init__(key)
        self.key = key


class Limits(NamedTuple):
    """`ottla.schema.validation.max.record.bytes` and `ottla.schema.validation.max.ms`."""

    record_bytes: int = 4 << 20
    batch_ms: int = 5000


class Checks(Protocol):
    limits: Limits

    def problem(self, key: SchemaKey, payload: bytes) -> str | None:
        """What is wrong with `payload` under that schema; NotLoaded when it is not ready."""


class CheckedBatch(NamedTuple):
    """A partition's part of a request and the rules of its topic; `records` is ours and stays as it is."""

    partition: TopicPartition
    records: bytearray
    mode: str
    quarantine_topic: str
    fields: tuple[str, ...]
    context: str
    config: TopicConfig


class Judgement(NamedTuple):
    """Both by the id() of a partition's data in the request: a request may name a partition twice."""

    invalid_records: dict[int, InvalidRecords]
    missing: dict[int, set[SchemaKey]]
    """Schemas that were not ready for a batch, which has no verdict yet."""


class InvalidRecords:
    """The records of one batch that do not match."""

    __slots__ = (
        "count",
        "failure",
        "mode",
        "partition",
        "prepared",
        "problems",
        "put_aside",
        "quarantine_topic",
        "records",
    )

    def __init__(self, batch: CheckedBatch) -> None:
        self.partition = batch.partition
        self.mode = batch.mode
        self.quarantine_topic = batch.quarantine_topic
        self.count = self.put_aside = 0
        self.problems: dict[int, str] = {}
        """By the record's index: all when they are put aside, otherwise those that the answer names."""
        self.records: list[tuple[Record, str]] = []
        self.failure: KafkaError | None = None
        self.prepared: ValidatedBatches | None = None
        """What is appended in the batch's place, once the invalid_records have been put aside."""

    def add(self, index: int, record: Record, problem: str) -> None:
        self.count += 1
        if self.mode == QUARANTINE:
            self.put_aside += record_bytes(record)
            if self.put_aside > MAX_PUT_ASIDE_BYTES:
                text = f"more than {MAX_PUT_ASIDE_BYTES} bytes of the batch would have to be put aside"
                self.failure = RecordValidationError(ErrorCode.INVALID_RECORD, text, [])
                self.records.clear()
                return
            self.records.append((record, problem))
        if self.mode == QUARANTINE or self.count <= _MAX_NAMED:
            self.problems[index] = problem

    def refuse(self) -> None:
        """RecordValidationError unless they were put aside."""
        if self.failure is not None:
            raise self.failure
        if self.mode == QUARANTINE:
            return
        named = [RecordError(index, text) for index, text in self.problems.items()]
        text = f"{self.count} of the batch's records do not match their schema"
        raise RecordValidationError(ErrorCode.INVALID_RECORD, text, named)

    def prepare(self, batch: CheckedBatch, now_ms: int, version: int) -> None:
        """In a worker too: the batch without them. The log's own verdict on the whole comes first."""
        try:
            validated = validate_produce(batch.records, batch.partition, batch.config, now_ms, version=version)
            self.prepared = self._taken_out(validated)
        except KafkaError as error:
            self.failure = error

    def _taken_out(self, validated: ValidatedBatches) -> ValidatedBatches:
        """Offsets and sequence numbers of the others stay."""
        header = parse_header(validated.buf, 0)
        payload = batch_payload(validated.buf, 0, header)
        body = bytearray()
        for index, span in enumerate(iterate_spans(payload, header)):
            if index not in self.problems:
                body += payload[span[0] : span[1]]
        kept = header.record_count - len(self.problems)
        fresh = assemble_batch(
            body, kept, base_offset=header.base_offset, last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp, max_timestamp=header.max_timestamp,
            attributes=header.attributes, leader_epoch=header.leader_epoch, producer_id=header.producer_id,
            producer_epoch=header.producer_epoch, base_sequence=header.base_sequence,
        )  # fmt: skip
        return ValidatedBatches(fresh, [(0, parse_header(fresh, 0))], validated.log_append_time_ms)


def unchecked(batch: CheckedBatch, reason: str) -> InvalidRecords:
    """Refused with an error that every client retries: the records may be all right."""
    invalid_records = InvalidRecords(batch)
    invalid_records.failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)
    return invalid_records


def judge_all(checks: Checks, batches: Mapping[int, CheckedBatch]) -> Judgement:
    """In a worker thread, for about as long as one batch may take: the batches that are left then are not begun."""
    judged = Judgement({}, {})
    deadline = time.monotonic() + checks.limits.batch_ms / 1000
    for number, (key, batch) in enumerate(batches.items()):
        missing: set[SchemaKey] = set()
        late = number > 0 and time.monotonic() > deadline
        invalid_records = (
            unchecked(batch, "the request took too long to check") if late else judge(checks, batch, missing)
        )
        if missing and (invalid_records is None or invalid_records.failure is None):
            judged.missing[key] = missing
        elif invalid_records is not None:
            judged.invalid_records[key] = invalid_records
    return judged


def judge(checks: Checks, batch: CheckedBatch, missing: set[SchemaKey]) -> InvalidRecords | None:
    """The invalid_records of a batch, None when there are none. Schemas that are not ready are added to `missing`."""
    if not _is_whole(batch.records):
        return None  # the log refuses it, and has Kafka's words for it
    invalid_records = InvalidRecords(batch)
    deadline = time.monotonic() + checks.limits.batch_ms / 1000
    try:
        for index, record in enumerate(iterate_records(batch.records)):
            problem = _problem(checks, record, batch, missing)
            if problem is not None:
                invalid_records.add(index, record, problem)
                if invalid_records.failure is not None:
                    return invalid_records
            if time.monotonic() > deadline:
                text = f"the records took longer than {checks.limits.batch_ms} ms to check (ottla.schema.validation.max.ms)"
                invalid_records.failure = RecordValidationError(ErrorCode.INVALID_RECORD, text, [])
                return invalid_records
    except KafkaError as error:
        invalid_records.failure = RecordValidationError(error.code, error.message, [])
    except Exception as error:  # noqa: BLE001 - a supervisor: whatever a foreign schema or record does, it is its batch's error
        log.warning("schema_validation.failed", partition=str(batch.partition), reason=repr(error)[:500])
        text = f"the records cannot be checked: {type(error).__name__}"
        invalid_records.failure = RecordValidationError(ErrorCode.INVALID_RECORD, text, [])
    return invalid_records if invalid_records.problems or invalid_records.failure is not None else None


def record_bytes(record: Record) -> int:
    """About what a record takes in memory, or in a quarantine topic."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(_RECORD_OVERHEAD + len(name) + len(value or b"") for name, value in record.headers)


def _is_whole(records: bytearray) -> bool:
    if len(records) < HEADER_BYTES:
        return False
    header = parse_header(records, 0)
    return (
        header.magic == MAGIC_V2
        and HEADER_BYTES <= header.size <= len(records)
        and crc_matches(records, 0, header.size)
    )


def _problem(checks: Checks, record: Record, batch: CheckedBatch, missing: set[SchemaKey]) -> str | None:
    limit = checks.limits.record_bytes
    for field in batch.fields:
        data, header = (record.key, KEY_HEADER) if field == "key" else (record.value, VALUE_HEADER)
        if data is None:
            continue  # a tombstone, or a record without a key, has no schema
        if len(data) > limit:
            return f"{field}: {len(data)} bytes; at most {limit} are checked (ottla.schema.validation.max.record.bytes)"
        try:
            key, payload = _schema_key(data, record, header, batch.context)
            problem = checks.problem(key, payload)
        except NotLoaded as needed:
            if len(missing) < MAX_LOADED:
                missing.add(needed.key)
            continue
        except ValueError as error:
            problem = str(error)
        if problem is not None:
            return f"{field}: {problem}"
    return None


def _schema_key(data: bytes, record: Record, header: str, context: str) -> tuple[SchemaKey, bytes]:
    """The schema that a header names by its guid, otherwise the id before the data, and the data itself.

    Confluent's clients read the header first. Of several headers, the Java client reads the last and the Python client
    the first.
    """
    named = {value for name, value in record.headers if name == header}
    if not named:
        schema_id, payload = unframed(data)
        return SchemaKey(context, schema_id), payload
    try:
        (value,) = named
        return SchemaKey("", guid_in_header(value)), data
    except (SchemaFramingError, ValueError):
        raise ValueError(f"its header {header} does not name one schema by its guid") from None
