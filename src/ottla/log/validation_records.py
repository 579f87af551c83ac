"""The rules of produce that are about single records, and recompression to the topic's codec.

Called by `validation` only when one of these rules applies. All bad records of a batch are collected, then the batch
is refused as a whole with the list, as Kafka does (KIP-467).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP
from ottla.protocol.compression import GZIP, LZ4, ZSTD, TooLargeError
from ottla.protocol.records import (
    COMPRESSION_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    RecordSpan,
    assemble_batch,
    batch_payload,
    check_filled,
    encode_record,
    next_spans,
    record_at,
)
from ottla.protocol.records_check import next_checked_spans

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.env.config import TopicConfig
    from ottla.model.ids import TopicPartition

MAX_ERRORS_IN_MESSAGE = 3
MAX_RECORD_ERRORS = 10_000
"""Records that an answer names."""
STEP_RECORDS = 1000
LOOP_RECORDS = 1000
LOOP_BYTES = 64 * 1024
"""How many uncompressed bytes are walked on the loop: 1 to 3 ms. A worker walks larger batches."""
_NO_PRODUCER = -1
_NO_EPOCH = -1


class RecordError(NamedTuple):
    batch_index: int
    message: str


class RecordValidationError(KafkaError):
    """A batch refused because of some of its records; the Produce response names each (v8+)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class WalkedRecords(NamedTuple):
    payload: memoryview | bytes
    max_timestamp: int
    first_delta: int
    """The timestamp of the first record, after the batch's base."""
    min_delta: int
    consecutive: bool
    """Whether the offset deltas are 0, 1, 2 ...."""


class LargeWalkError(Exception):
    """More records than the loop may walk: nothing has been changed, and a worker can do the same."""


def walk_records(
    buf: Buffer,
    header: BatchHeader,
    partition: TopicPartition,
    config: TopicConfig,
    timestamp_type: int,
    now_ms: int,
    *,
    on_loop: bool = False,
) -> WalkedRecords:
    """Check every record of the batch at the start of `buf`; LargeWalkError when they are many and `on_loop`."""
    payload = _payload(buf, header, on_loop=on_loop)
    keys_needed = "compact" in config.cleanup_policy and not header.is_control
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    stamped = header.timestamp_type == LOG_APPEND_TIME
    base_timestamp = header.base_timestamp
    max_timestamp = NO_TIMESTAMP
    consecutive = True
    errors = _Errors()
    bad_timestamp = False
    first_delta = min_delta = 0
    for index, span in enumerate(iterate_spans(payload, header, full=config.ottla_validate_records)):
        if index == 0:
            first_delta = min_delta = span[3]
        min_delta = min(min_delta, span[3])
        timestamp = header.max_timestamp if stamped else base_timestamp + span[3]
        max_timestamp = max(max_timestamp, timestamp)
        if span[2] != index:
            consecutive = False
        if keys_needed and span[4] < 0:
            errors.append(
                RecordError(index, f"Compacted topic cannot accept message without key in topic partition {partition}")
            )
        elif timestamp_type == CREATE_TIME and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                bad_timestamp = True
                errors.append(
                    RecordError(index, _out_of_range(timestamp, header.base_offset + span[2], earliest, latest))
                )
        elif stamped:
            bad_timestamp = True
            errors.append(RecordError(index, _stamped_by_producer(payload, span, header, timestamp)))
    if errors.total:
        raise _refusal(errors, bad_timestamp=bad_timestamp)
    return WalkedRecords(payload, max_timestamp, first_delta, min_delta, consecutive)


def _payload(buf: Buffer, header: BatchHeader, *, on_loop: bool) -> memoryview | bytes:
    if not on_loop:
        return batch_payload(buf, 0, header)
    if header.record_count > LOOP_RECORDS or header.batch_length > LOOP_BYTES:
        raise LargeWalkError
    try:
        return batch_payload(buf, 0, header, limit=LOOP_BYTES)
    except TooLargeError:
        raise LargeWalkError from None


def iterate_spans(payload: memoryview | bytes, header: BatchHeader, *, full: bool = False) -> Iterator[RecordSpan]:
    """Step by step: the spans of 100 MB of small records would take 2 GB."""
    pos = 0
    compressed = header.compression != 0
    for done in range(0, header.record_count, STEP_RECORDS):
        count = min(STEP_RECORDS, header.record_count - done)
        if full:
            spans, pos = next_checked_spans(payload, pos, count, compressed=compressed)
        else:
            spans, pos = next_spans(payload, pos, count)
        yield from spans
    check_filled(payload, pos, header.record_count)


class _Errors:
    """Errors of records: all are counted, and only the first are named, so that the answer stays small."""

    __slots__ = ("named", "total")

    def __init__(self) -> None:
        self.named: list[RecordError] = []
        self.total = 0

    def append(self, error: RecordError) -> None:
        self.total += 1
        if self.total <= MAX_RECORD_ERRORS:
            self.named.append(error)


def recompress(
    walked: WalkedRecords, header: BatchHeader, config: TopicConfig, codec: int, timestamp_type: int, now_ms: int
) -> bytearray:
    """The batch rebuilt in `codec`, with consecutive offsets and its first record's timestamp as base timestamp."""
    level = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }.get(codec)
    shift = walked.first_delta
    _check_buildable(walked, header)
    append_time = timestamp_type == LOG_APPEND_TIME
    attributes = header.attributes & ~(COMPRESSION_MASK | TIMESTAMP_TYPE_MASK) | codec | (timestamp_type << 3)
    return assemble_batch(
        walked.payload if walked.consecutive and not shift else _renumbered(walked, header, shift),
        header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.record_count - 1,
        base_timestamp=header.base_timestamp + shift,
        max_timestamp=now_ms if append_time else walked.max_timestamp,
        attributes=attributes,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        level=level,
    )


def _check_buildable(walked: WalkedRecords, header: BatchHeader) -> None:
    """Refuse what Kafka's builder refuses when it rebuilds a batch: the builder's exceptions have no error code of
    their own.
    """
    if header.base_timestamp + walked.min_delta < NO_TIMESTAMP:
        problem = "A record has a negative timestamp"
    elif header.producer_id == _NO_PRODUCER:
        if not header.is_transactional:
            return
        problem = "A transactional batch has no producer id"
    elif header.producer_epoch == _NO_EPOCH or header.base_sequence < 0:
        problem = "A batch has a producer id, and no epoch or sequence"
    else:
        return
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, problem)


def _renumbered(walked: WalkedRecords, header: BatchHeader, shift: int) -> bytearray:
    out = bytearray()
    for index, span in enumerate(iterate_spans(walked.payload, header)):
        timestamp_delta, _, key, value, headers, _ = record_at(walked.payload, span[0])
        encode_record(out, index, timestamp_delta - shift, key, value, headers)
    return out


def _out_of_range(timestamp: int, offset: int, earliest: int, latest: int) -> str:
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def _stamped_by_producer(payload: memoryview | bytes, span: RecordSpan, header: BatchHeader, timestamp: int) -> str:
    _, offset_delta, key, value, _, _ = record_at(payload, span[0])
    record = (
        f"DefaultRecord(offset={header.base_offset + offset_delta}, timestamp={timestamp}, "
        f"key={len(key or b'')} bytes, value={len(value or b'')} bytes)"
    )
    return f"Invalid timestamp type in message {record}. Producer should not set timestamp type to LogAppendTime."


def _refusal(errors: _Errors, *, bad_timestamp: bool) -> RecordValidationError:
    if bad_timestamp:
        message = "One or more records have been rejected due to invalid timestamp"
        return RecordValidationError(ErrorCode.INVALID_TIMESTAMP, message, errors.named)
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
        for error in errors.named[:MAX_ERRORS_IN_MESSAGE]
    )
    message = (
        f"One or more records have been rejected due to {errors.total} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return RecordValidationError(ErrorCode.INVALID_RECORD, message, errors.named)
