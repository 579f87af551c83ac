"""The records of a batch read to their last byte, as Apache Kafka reads what is produced: for topics that ask for it.

`records_walk.next_spans` believes a record's length and passes over values and headers. Here every varint must fit its
type and every length its record; about 2 us a record. Codes are those of Apache Kafka 4.3.1: INVALID_RECORD, and
UNKNOWN_SERVER_ERROR where the length of an uncompressed record is no number at all.
"""

from __future__ import annotations

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.records_walk import RecordSpan, invalid_record, read_varint

_INT_BYTES = 5


def next_checked_spans(
    payload: memoryview | bytes, pos: int, count: int, *, compressed: bool
) -> tuple[list[RecordSpan], int]:
    """As `records_walk.next_spans`, and every field of every record is read."""
    spans: list[RecordSpan] = []
    try:
        for _ in range(count):
            start = pos
            length, pos = _record_length(payload, pos, compressed=compressed)
            end = pos + length
            if length < 0 or end > len(payload):
                raise invalid_record(f"Invalid record size: expected {length} bytes in record payload")
            time_delta, pos = read_varint(payload, pos + 1)
            offset_delta, pos = _int(payload, pos)
            key_length, pos = _int(payload, pos)
            key_start = pos if key_length >= 0 else -1
            pos = _after(pos, key_length, end)
            key_end = pos if key_length >= 0 else -1
            value_length, pos = _int(payload, pos)
            pos = _after(pos, value_length, end)
            headers, pos = _int(payload, pos)
            if headers:
                pos = _after_headers(payload, pos, end, headers)
            if pos != end:
                raise invalid_record(f"Invalid record size: {end - pos} bytes differ from the fields' lengths")
            spans.append((start, end, offset_delta, time_delta, key_start, key_end, value_length < 0))
    except IndexError as problem:
        raise invalid_record("Found invalid record structure: the batch ends inside a record") from problem
    return spans, pos


def _record_length(payload: memoryview | bytes, pos: int, *, compressed: bool) -> tuple[int, int]:
    """Kafka reads it in another place when the batch is not compressed, where an overlong number has no code."""
    if (
        not compressed
        and len(payload) >= pos + _INT_BYTES
        and all(byte > 0x7F for byte in payload[pos : pos + _INT_BYTES])
    ):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The length of a record is not a 32-bit number")
    return _int(payload, pos)


def _int(payload: memoryview | bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most five bytes."""
    byte = payload[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    value, after = read_varint(payload, pos)
    if after - pos > _INT_BYTES:
        raise invalid_record("Varint is too long, the most significant bit in the 5th byte is set")
    return value, after


def _after(pos: int, length: int, end: int) -> int:
    """A negative length is null, whatever it is."""
    if length > 0:
        pos += length
    if pos > end:
        raise invalid_record(f"A field of {length} bytes overruns its record")
    return pos


def _after_headers(payload: memoryview | bytes, pos: int, end: int, count: int) -> int:
    if count < 0 or count > end - pos:
        raise invalid_record(f"Found invalid number of record headers {count}")
    for _ in range(count):
        length, pos = _int(payload, pos)
        if length < 0:
            raise invalid_record(f"Invalid negative header key size {length}")
        pos = _after(pos, length, end)
        length, pos = _int(payload, pos)
        pos = _after(pos, length, end)
    return pos
