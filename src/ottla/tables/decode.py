"""Record batches to Arrow, without a Python object per record.

One short loop finds where each record begins; everything else (deltas, lengths, keys, values) is numpy over all records
of a chunk at once, and keys and values are Arrow views into the fetched bytes, copied once by Arrow itself. A length
is believed only after it was checked against the record that holds it: INVALID_RECORD otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.protocol.records import LOG_APPEND_TIME, BatchHeader, batch_payload, read_varint
from ottla.protocol.records_walk import invalid_record

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""The columns of Spark's own Kafka source, in its order."""
_INLINE = 12
"""Arrow's view type holds this many bytes in the view itself."""


@dataclass(slots=True)
class Chunk:
    """Batches that are decoded together: their payloads lie in one buffer."""

    payloads: list[memoryview | bytes] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    size: int = 0

    def add(self, buf: Any, pos: int, header: BatchHeader) -> None:
        payload = batch_payload(buf, pos, header)
        self.payloads.append(payload)
        self.headers.append(header)
        self.size += len(payload)


def decode_chunk(
    chunk: Chunk, topic: str, partition: int, start: int, end: int, *, with_headers: bool = False
) -> pa.RecordBatch:
    """The records of `chunk` with start <= offset < end, as a batch of SCHEMA (`headers` only when asked for)."""
    payload = chunk.payloads[0] if len(chunk.payloads) == 1 else b"".join(chunk.payloads)
    raw: Bytes = np.frombuffer(payload, np.uint8)
    starts, ends = _record_bounds(chunk, payload, raw)
    counts = [header.record_count for header in chunk.headers]
    try:
        timestamp_delta, pos = _varints(raw, starts + 1)
        offset_delta, pos = _varints(raw, pos)
        key_length, key_at = _varints(raw, pos)
        value_length, value_at = _varints(raw, _after(key_at, key_length, ends))
        header_count, headers_at = _varints(raw, _after(value_at, value_length, ends))
    except IndexError:
        raise invalid_record("Found invalid record structure: the batch ends inside a record") from None
    if (headers_at > ends).any():
        raise invalid_record("A record is longer than it says")
    offsets = np.repeat([header.base_offset for header in chunk.headers], counts) + offset_delta
    keep = (offsets >= start) & (offsets < end)
    if not keep.all():
        offsets, timestamp_delta = offsets[keep], timestamp_delta[keep]
        key_at, key_length = key_at[keep], key_length[keep]
        value_at, value_length = value_at[keep], value_length[keep]
        header_count, headers_at, ends = header_count[keep], headers_at[keep], ends[keep]
    append_time = np.repeat([header.timestamp_type == LOG_APPEND_TIME for header in chunk.headers], counts)[keep]
    base = np.repeat([header.base_timestamp for header in chunk.headers], counts)[keep]
    newest = np.repeat([header.max_timestamp for header in chunk.headers], counts)[keep]
    timestamps = np.where(append_time, newest, base + timestamp_delta)
    buffer = pa.py_buffer(payload)
    rows = len(offsets)
    columns = [
        _binary(raw, buffer, key_at, key_length),
        _binary(raw, buffer, value_at, value_length),
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pa.array(offsets),
        pa.array(timestamps * 1000).cast(TIMESTAMP_TYPE),
        pa.array(append_time.astype(np.int32)),
    ]
    fields = list(SCHEMA)
    if with_headers:
        columns.append(_headers(payload, header_count, headers_at, ends))
    else:
        fields = fields[:-1]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _record_bounds(chunk: Chunk, payload: memoryview | bytes, raw: Bytes) -> tuple[Ints, Ints]:
    """Where the body of each record begins (its attributes byte) and ends."""
    begins: list[Ints] = []
    ends: list[Ints] = []
    base = 0
    for part, header in zip(chunk.payloads, chunk.headers, strict=True):
        limit = base + len(part)
        begin, end = _equal_records(payload, raw, base, limit, header.record_count) or _walk(
            payload, base, limit, header.record_count
        )
        begins.append(begin)
        ends.append(end)
        base = limit
    return np.concatenate(begins), np.concatenate(ends)


def _equal_records(
    payload: memoryview | bytes, raw: Bytes, base: int, limit: int, count: int
) -> tuple[Ints, Ints] | None:
    """The bounds when all records of a batch have one size, found without a loop."""
    if count < 8 or (limit - base) % count:
        return None
    length, begin = read_varint(payload, base)
    stride = begin - base + length
    if length < 0 or stride * count != limit - base:
        return None
    prefixes = raw[base:limit].reshape(count, stride)[:, : begin - base]
    if (prefixes != prefixes[0]).any():
        return None
    begins: Ints = np.arange(count, dtype=np.int64) * stride + begin
    return begins, begins + length


def _walk(payload: memoryview | bytes, pos: int, limit: int, count: int) -> tuple[Ints, Ints]:
    begins: list[int] = []
    ends: list[int] = []
    try:
        for _ in range(count):
            byte = payload[pos]
            second = payload[pos + 1]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            elif second < 0x80:
                length = (((byte & 0x7F) | (second << 7)) >> 1) ^ -(byte & 1)
                pos += 2
            else:
                length, pos = read_varint(payload, pos)
            begins.append(pos)
            pos += length
            ends.append(pos)
            if length < 0 or pos > limit:
                raise invalid_record(f"Invalid record size: expected {length} bytes in record payload")
    except IndexError:
        raise invalid_record("Found invalid record structure: the batch ends inside a record") from None
    if pos != limit:
        raise invalid_record(f"Incorrect declared batch size, {limit - pos} bytes left after {count} records")
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _varints(raw: Bytes, pos: Ints) -> tuple[Ints, Ints]:
    """The zigzag varints at the positions `pos`, and the positions after them; IndexError past the end."""
    byte = raw[pos]
    value = (byte & 0x7F).astype(np.uint64)
    pos = pos + 1
    rest = np.flatnonzero(byte >= 0x80)
    shift = 7
    while rest.size:
        if shift > 63:
            raise invalid_record("Varint is too long, the most significant bit in the 10th byte is set")
        byte = raw[pos[rest]]
        value[rest] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        pos[rest] += 1
        rest = rest[byte >= 0x80]
        shift += 7
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), pos


def _after(at: Ints, length: Ints, ends: Ints) -> Ints:
    """The position after a nullable field; it must lie inside its record."""
    after = at + np.maximum(length, 0)
    if (length < -1).any() or (length > ends - at).any() or (after >= ends).any():
        raise invalid_record("A key or value is longer than its record")
    return after


def _binary(raw: Bytes, buffer: pa.Buffer, at: Ints, length: Ints) -> pa.Array:
    """Slices of `buffer` as an Arrow binary array: views first, then one copy by Arrow."""
    rows = len(at)
    nulls = length < 0
    views = np.zeros((rows, 16), np.uint8)
    words = views.view(np.int32)
    words[:, 0] = np.maximum(length, 0)
    short = np.flatnonzero((length <= _INLINE) & (length > 0))
    if short.size:
        columns = np.arange(_INLINE)
        inside = columns < length[short, None]
        index = np.where(inside, at[short, None] + columns, 0)
        views[short, 4:16] = np.where(inside, raw[index], 0)
    long = np.flatnonzero(length > _INLINE)
    if long.size:
        views[long, 4:8] = raw[at[long, None] + np.arange(4)]
        words[long, 3] = at[long]
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    array = pa.Array.from_buffers(pa.binary_view(), rows, [validity, pa.py_buffer(views), buffer])
    return array.cast(pa.binary())


def _headers(payload: memoryview | bytes, count: Ints, at: Ints, ends: Ints) -> pa.Array:
    """Kafka gives a record without headers null, and so does Spark's source."""
    if not count.any():
        return pa.nulls(len(count), HEADERS_TYPE)
    rows = [
        _one_headers(payload, at_, int(n), int(end)) if n else None
        for n, at_, end in zip(count.tolist(), at.tolist(), ends.tolist(), strict=True)
    ]
    return pa.array(rows, HEADERS_TYPE)


def _one_headers(payload: memoryview | bytes, pos: int, count: int, end: int) -> list[tuple[str, bytes | None]]:
    if count < 0 or count > end - pos:
        raise invalid_record(f"Found invalid number of record headers {count}")
    found = []
    try:
        for _ in range(count):
            name, pos = _slice(payload, pos, end)
            value, pos = _slice(payload, pos, end)
            if name is None:
                raise invalid_record("Invalid negative header key size -1")
            found.append((name.decode(errors="replace"), value))
    except IndexError:
        raise invalid_record("Found invalid record structure: the headers end inside a record") from None
    return found


def _slice(payload: memoryview | bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(payload, pos)
    if length < 0:
        return None, pos
    if length > end - pos:
        raise invalid_record("A header is longer than its record")
    return bytes(payload[pos : pos + length]), pos + length


def concatenated(batches: Iterable[pa.RecordBatch], *, with_headers: bool) -> pa.Table:
    """One table; with no batch, an empty one of the right columns."""
    schema = SCHEMA if with_headers else pa.schema(list(SCHEMA)[:-1])
    return pa.Table.from_batches(batches, schema)
