"""The records inside a batch: whole records for those who read them, byte ranges for those who only sort them.

Records are walked only where a feature needs it (about 0.3 us each). Every length is checked against the bytes that
are there before it is used: INVALID_RECORD is the answer to a batch whose records do not fill it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.compression import MAX_DECOMPRESSED_BYTES, decompress
from ottla.protocol.records_header import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, parse_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


RecordSpan: TypeAlias = tuple[int, int, int, int, int, int, bool]
"""start, end, offset delta, timestamp delta, key start, key end (both -1 for a null key), value is null.

`start` is the record's length varint, `end` its last byte + 1: `payload[start:end]` is the record as it stands.
A plain tuple: a compaction walks millions of these."""


def invalid_record(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def read_varint(buf: memoryview | bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits and the position after it; IndexError at the end of the buffer."""
    shift = 0
    raw = 0
    while True:
        byte = buf[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
        if shift > 63:
            raise invalid_record("Varint is too long, the most significant bit in the 10th byte is set")


def batch_payload(
    buf: Buffer, pos: int, header: BatchHeader, *, limit: int = MAX_DECOMPRESSED_BYTES
) -> memoryview | bytes:
    """The bytes of the records of the batch at `pos`: a view when they are not compressed."""
    records = memoryview(buf).cast("B")[pos + HEADER_BYTES : pos + header.size]
    return decompress(header.compression, records, limit) if header.compression else records


def record_spans(payload: memoryview | bytes, count: int) -> list[RecordSpan]:
    """Where each of `count` records and its key lie; INVALID_RECORD unless they fill the payload exactly."""
    spans, pos = next_spans(payload, 0, count)
    check_filled(payload, pos, count)
    return spans


def check_filled(payload: memoryview | bytes, pos: int, count: int) -> None:
    if pos != len(payload):
        raise invalid_record(f"Incorrect declared batch size, {len(payload) - pos} bytes left after {count} records")


def next_spans(payload: memoryview | bytes, pos: int, count: int) -> tuple[list[RecordSpan], int]:
    """The `count` records from `pos`, and the position after them: a large batch can be walked in several steps.

    The three deltas and lengths are read in line: nine of ten are one byte, and a call for each would double the time.
    """
    spans: list[RecordSpan] = []
    append = spans.append
    size = len(payload)
    try:
        for _ in range(count):
            start = pos
            byte = payload[pos]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                length, pos = read_varint(payload, pos)
            end = pos + length
            if length < 0 or end > size:
                raise invalid_record(f"Invalid record size: expected {length} bytes in record payload")
            pos += 1
            byte = payload[pos]
            if byte < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                timestamp_delta, pos = read_varint(payload, pos)
            byte = payload[pos]
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                offset_delta, pos = read_varint(payload, pos)
            byte = payload[pos]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                length, pos = read_varint(payload, pos)
            key_start = key_end = -1
            if length >= 0:
                key_start = pos
                pos = key_end = pos + length
            if pos >= end:
                raise invalid_record(f"The key of a record of {end - start} bytes overruns it")
            # Zigzag: the lowest bit of a negative length, that is of a null value, is 1.
            append((start, end, offset_delta, timestamp_delta, key_start, key_end, payload[pos] & 1 == 1))
            pos = end
    except IndexError as problem:
        raise invalid_record("Found invalid record structure: the batch ends inside a record") from problem
    return spans, pos


def record_at(payload: memoryview | bytes, pos: int) -> tuple[int, int, bytes | None, bytes | None, Headers, int]:
    """Timestamp delta, offset delta, key, value, headers of the record at `pos`, and where the next begins."""
    length, pos = read_varint(payload, pos)
    end = pos + length
    if length < 0 or end > len(payload):
        raise invalid_record(f"Invalid record size: expected {length} bytes in record payload")
    timestamp_delta, pos = read_varint(payload, pos + 1)
    offset_delta, pos = read_varint(payload, pos)
    key, pos = _nullable_bytes(payload, pos, end)
    value, pos = _nullable_bytes(payload, pos, end)
    count, pos = read_varint(payload, pos)
    if count < 0 or count > end - pos:
        raise invalid_record(f"Found invalid number of record headers {count}")
    headers: Headers = ()
    if count:
        headers, pos = _headers(payload, pos, end, count)
    if pos != end:
        raise invalid_record(f"Invalid record size: {end - pos} bytes differ from the fields' lengths")
    return timestamp_delta, offset_delta, key, value, headers, end


def iterate_records(buf: Buffer, pos: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of the batch at `pos`, decompressed where needed. The CRC is the caller's to check."""
    header = parse_header(buf, pos)
    payload = batch_payload(buf, pos, header, limit=limit)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    at = 0
    try:
        for _ in range(header.record_count):
            timestamp_delta, offset_delta, key, value, headers, at = record_at(payload, at)
            timestamp = append_time if append_time is not None else base_timestamp + timestamp_delta
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError as problem:
        raise invalid_record("Found invalid record structure: the batch ends inside a record") from problem
    if at != len(payload):
        raise invalid_record(f"Incorrect declared batch size, {len(payload) - at} bytes left in the batch")


def _nullable_bytes(payload: memoryview | bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(payload, pos)
    if length < 0:
        return None, pos
    if length > end - pos:
        raise invalid_record(f"A field of {length} bytes overruns its record")
    return bytes(payload[pos : pos + length]), pos + length


def _headers(payload: memoryview | bytes, pos: int, end: int, count: int) -> tuple[Headers, int]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, pos = _nullable_bytes(payload, pos, end)
        if name is None:
            raise invalid_record("Invalid negative header key size")
        value, pos = _nullable_bytes(payload, pos, end)
        try:
            headers.append((name.decode("utf-8"), value))
        except UnicodeDecodeError as problem:
            raise invalid_record("A header key is not UTF-8") from problem
    return tuple(headers), pos
