"""Record batches to Arrow, without a Python object per record.

Deltas, lengths, keys and values are numpy arrays over all records of a chunk (ottla.tables.positions,
ottla.tables.slices). Keys and values are copied once, from the bytes that were fetched or mapped. Every length is
checked against the record that holds it; a wrong length raises INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.protocol.records import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, batch_payload, read_varint
from ottla.protocol.records_walk import invalid_record
from ottla.tables.positions import Bytes, Ints, record_bounds, varints
from ottla.tables.slices import Later, at_once, binary

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
MILLISECONDS_TYPE = pa.timestamp("ms", tz="UTC")
_MOST_MS = (2**63 - 1) // 1000
"""What TIMESTAMP_TYPE can hold: the year 294247. A producer that wrote nanoseconds is beyond."""
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
_MILLISECONDS_SCHEMA = SCHEMA.set(5, pa.field("timestamp", MILLISECONDS_TYPE))
_MOST_BYTES = 1 << 30
"""Arrow's offsets are 32 bits wide."""
MAX_HEADERS = 100_000
"""Of one record. A header takes two bytes in a batch, and a hundred here: 3 KB of zstd unpack to 50 million headers."""
_HEADERS_AT_ONCE = 1 << 17
"""Headers that exist as Python objects at a time."""
_KEPT_ROWS = 1 << 14
"""The longest column of one repeated value that is cached."""


@dataclass(slots=True)
class Chunk:
    """Batches that are decoded together. Uncompressed batches in one buffer are decoded without a copy."""

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
        """One buffer with all payloads, and where each payload begins in it."""
        if self._buf is not None:
            first, last = self._begins[0], self._begins[-1] + len(self.payloads[-1])
            if last - first < _MOST_BYTES:
                return memoryview(self._buf).cast("B")[first:last], [begin - first for begin in self._begins]
        begins = [0, *accumulate(len(payload) for payload in self.payloads[:-1])]
        return self.payloads[0] if len(self.payloads) == 1 else b"".join(self.payloads), begins

    def clear(self) -> None:
        """Release the buffers."""
        self.payloads.clear()
        self._buf = None


def decode_chunk(
    chunk: Chunk,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    with_headers: bool = False,
    milliseconds: bool = False,
    later: Later = at_once,
) -> pa.RecordBatch:
    """The records of `chunk` with start <= offset < end, as a batch of SCHEMA (`headers` only with `with_headers`,
    timestamps of MILLISECONDS_TYPE with `milliseconds`). The work that `later` gets fills the batch: read the batch only
    after that work has run.
    """
    payload, bases = chunk.joined()
    raw: Bytes = np.frombuffer(payload, np.uint8)
    counts = [header.record_count for header in chunk.headers]
    limits = [base + len(part) for base, part in zip(bases, chunk.payloads, strict=True)]
    starts, ends = record_bounds(zip(bases, limits, counts, strict=True), payload, raw)
    try:
        timestamp_delta, pos = varints(raw, starts + 1)
        offset_delta, pos = varints(raw, pos)
        key_length, key_at = varints(raw, pos)
        value_length, value_at = varints(raw, _after(key_at, key_length, ends))
        header_count, headers_at = varints(raw, _after(value_at, value_length, ends))
    except IndexError:
        raise invalid_record("Found invalid record structure: the batch ends inside a record") from None
    if (headers_at > ends).any():
        raise invalid_record("A record is longer than its declared length")
    offsets = np.repeat([header.base_offset for header in chunk.headers], counts) + offset_delta
    timestamps, append_time = _timestamps(chunk.headers, counts, timestamp_delta)
    keep = (offsets >= start) & (offsets < end)
    if not keep.all():
        offsets, timestamps, append_time = offsets[keep], timestamps[keep], append_time[keep]
        key_at, key_length = key_at[keep], key_length[keep]
        value_at, value_length = value_at[keep], value_length[keep]
        header_count, headers_at, ends = header_count[keep], headers_at[keep], ends[keep]
    buffer = pa.py_buffer(payload)
    rows = len(offsets)
    columns = [
        binary(buffer, raw, key_at, key_length, later),
        binary(buffer, raw, value_at, value_length, later),
        _repeated(topic, pa.string(), rows),
        _repeated(partition, pa.int32(), rows),
        pa.array(offsets),
        _times(timestamps, milliseconds=milliseconds),
        pa.array(append_time),
    ]
    fields = list(_MILLISECONDS_SCHEMA if milliseconds else SCHEMA)
    if with_headers:
        columns.append(_headers(payload, header_count, headers_at, ends))
    else:
        fields = fields[:-1]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _times(timestamps: Ints, *, milliseconds: bool) -> pa.Array:
    """Times beyond TIMESTAMP_TYPE become its limits: a wrong unit of a producer makes no topic unreadable."""
    if milliseconds:
        return pa.Array.from_buffers(MILLISECONDS_TYPE, len(timestamps), [None, pa.py_buffer(timestamps)])
    micros = np.clip(timestamps, -_MOST_MS, _MOST_MS) * 1000
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(timestamps), [None, pa.py_buffer(micros)])


def _timestamps(headers: list[BatchHeader], counts: list[int], delta: Ints) -> tuple[Ints, npt.NDArray[np.int32]]:
    """The timestamp of each record in milliseconds, and whether the broker (1) or the client (0) set it."""
    base = np.repeat([header.base_timestamp for header in headers], counts) + delta
    kinds = [header.timestamp_type == LOG_APPEND_TIME for header in headers]
    if not any(kinds):
        return base, np.zeros(len(base), np.int32)
    append_time = np.repeat(np.array(kinds, np.int32), counts)
    newest = np.repeat([header.max_timestamp for header in headers], counts)
    return np.where(append_time, newest, base), append_time


def _repeated(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    return _kept(value, kind)[:rows] if rows <= _KEPT_ROWS else pa.repeat(pa.scalar(value, kind), rows)


@lru_cache(maxsize=8)
def _kept(value: str | int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), _KEPT_ROWS)


def _after(at: Ints, length: Ints, ends: Ints) -> Ints:
    """The position after a nullable field; it must lie inside its record."""
    after = at + np.maximum(length, 0)
    if (length < -1).any() or (length > ends - at).any() or (after >= ends).any():
        raise invalid_record("A key or value is longer than its record")
    return after


def _headers(payload: memoryview | bytes, count: Ints, at: Ints, ends: Ints) -> pa.Array:
    """Kafka gives a record without headers null, and so does Spark's source."""
    if not count.any():
        return pa.nulls(len(count), HEADERS_TYPE)
    parts: list[pa.Array] = []
    rows: list[list[tuple[str, bytes | None]] | None] = []
    held = 0
    for n, at_, end in zip(count.tolist(), at.tolist(), ends.tolist(), strict=True):
        rows.append(_one_headers(payload, at_, n, end) if n else None)
        held += n
        if held >= _HEADERS_AT_ONCE:
            parts.append(pa.array(rows, HEADERS_TYPE))
            rows, held = [], 0
    parts.append(pa.array(rows, HEADERS_TYPE))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _one_headers(payload: memoryview | bytes, pos: int, count: int, end: int) -> list[tuple[str, bytes | None]]:
    if count < 0 or count > end - pos:
        raise invalid_record(f"Found invalid number of record headers {count}")
    if count > MAX_HEADERS:
        raise invalid_record(f"A record has {count} headers, more than {MAX_HEADERS}")
    headers = []
    try:
        for _ in range(count):
            name, pos = _slice(payload, pos, end)
            value, pos = _slice(payload, pos, end)
            if name is None:
                raise invalid_record("Invalid negative header key size -1")
            headers.append((name.decode(errors="replace"), value))
    except IndexError:
        raise invalid_record("Found invalid record structure: the headers end inside a record") from None
    return headers


def _slice(payload: memoryview | bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(payload, pos)
    if length < 0:
        return None, pos
    if length > end - pos:
        raise invalid_record("A header is longer than its record")
    return bytes(payload[pos : pos + length]), pos + length


def concatenated(batches: Iterable[pa.RecordBatch], *, with_headers: bool) -> pa.Table:
    """One table; without batches, an empty table with the right columns."""
    schema = SCHEMA if with_headers else pa.schema(list(SCHEMA)[:-1])
    return pa.Table.from_batches(batches, schema)
