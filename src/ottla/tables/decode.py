"""Record batches to Arrow, without a Python object per record.

Where each record begins is found for runs of equal records at once, else by a short loop; everything else (deltas,
lengths, keys, values) is numpy over all records of a chunk. Keys and values are copied once, by Arrow, out of the bytes
that were fetched or mapped. A length is believed only after it was checked against the record that holds it:
INVALID_RECORD otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.protocol.records import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, batch_payload, read_varint
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
_MOST_BYTES = 1 << 30
"""Arrow's offsets are 32 bits wide."""
_RUN = 8
"""Fewer equal records than this in a row are walked one by one,"""
_STRIDE = 64
"""so many of them before the next look for a run."""


@dataclass(slots=True)
class Chunk:
    """Batches that are decoded together. Uncompressed ones that lie in one buffer are decoded where they are."""

    payloads: list[memoryview | bytes] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    size: int = 0
    _buf: Any = None
    _begins: list[int] = field(default_factory=list)

    def add(self, buf: Any, pos: int, header: BatchHeader) -> None:
        payload = batch_payload(buf, pos, header)
        if not self.headers:
            self._buf = buf
        if header.compression or buf is not self._buf:
            self._buf = None
        self._begins.append(pos + HEADER_BYTES)
        self.payloads.append(payload)
        self.headers.append(header)
        self.size += len(payload)

    def joined(self) -> tuple[memoryview | bytes, list[int]]:
        """One buffer with all payloads, and where each of them begins in it."""
        if self._buf is not None:
            first, last = self._begins[0], self._begins[-1] + len(self.payloads[-1])
            if last - first < _MOST_BYTES:
                return memoryview(self._buf).cast("B")[first:last], [begin - first for begin in self._begins]
        begins = [0, *accumulate(len(payload) for payload in self.payloads[:-1])]
        return self.payloads[0] if len(self.payloads) == 1 else b"".join(self.payloads), begins

    def clear(self) -> None:
        """Lets go of the buffers."""
        self.payloads.clear()
        self._buf = None


def decode_chunk(
    chunk: Chunk, topic: str, partition: int, start: int, end: int, *, with_headers: bool = False
) -> pa.RecordBatch:
    """The records of `chunk` with start <= offset < end, as a batch of SCHEMA (`headers` only when asked for)."""
    payload, bases = chunk.joined()
    raw: Bytes = np.frombuffer(payload, np.uint8)
    starts, ends = _record_bounds(chunk, bases, payload, raw)
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
        _binary(buffer, key_at, key_length),
        _binary(buffer, value_at, value_length),
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


def _record_bounds(chunk: Chunk, bases: list[int], payload: memoryview | bytes, raw: Bytes) -> tuple[Ints, Ints]:
    """Where the body of each record begins (its attributes byte) and ends."""
    begins: list[Ints] = []
    ends: list[Ints] = []
    for base, part, header in zip(bases, chunk.payloads, chunk.headers, strict=True):
        pos, limit, left = base, base + len(part), header.record_count
        while left > 0:
            begin, end = _run(payload, raw, pos, limit, left) or _walk(payload, pos, limit, min(left, _STRIDE))
            begins.append(begin)
            ends.append(end)
            left -= len(begin)
            pos = int(end[-1])
        if pos != limit:
            raise invalid_record(
                f"Incorrect declared batch size, {limit - pos} bytes left after {header.record_count} records"
            )
    return np.concatenate(begins), np.concatenate(ends)


def _run(payload: memoryview | bytes, raw: Bytes, pos: int, limit: int, left: int) -> tuple[Ints, Ints] | None:
    """The next records while they have one size, found without a loop: each begins where the one before ends, and says
    the same length."""
    if left < _RUN:
        return None
    try:
        length, begin = read_varint(payload, pos)
    except IndexError:
        return None
    prefix = begin - pos
    stride = prefix + length
    count = min(left, (limit - pos) // stride) if length > 0 else 0
    if count < _RUN or payload[pos + stride : begin + stride] != payload[pos:begin]:
        return None
    rows = raw[pos : pos + count * stride].reshape(count, stride)[:, :prefix]
    different = np.flatnonzero((rows != rows[0]).any(axis=1))
    if different.size:
        count = int(different[0])
        if count < _RUN:
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


def _binary(buffer: pa.Buffer, at: Ints, length: Ints) -> pa.Array:
    """Slices of `buffer` as an Arrow binary array. The slices and the gaps between them are an array over the buffer as
    it is; every second element of it is taken, which is one copy by Arrow."""
    rows = len(at)
    nulls = length < 0
    if nulls.all():
        return pa.nulls(rows, pa.binary())
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2] = at
    offsets[1::2] = at + np.maximum(length, 0)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), buffer])
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return pieces.take(pa.array(wanted, mask=nulls) if nulls.any() else pa.array(wanted))


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
