"""Where the records of many batches begin and end, and the varints at many positions.

Runs of records of equal size are found at once, other records by a short loop. A length is used only if its record lies
inside its batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ottla.protocol.records import read_varint
from ottla.protocol.records_walk import invalid_record

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_RUN = 8
"""Fewer records of equal size in a row are walked one by one."""
_STRIDE = 64
"""Records that are walked before the next search for a run."""


def record_bounds(parts: Iterable[tuple[int, int, int]], payload: memoryview | bytes, raw: Bytes) -> tuple[Ints, Ints]:
    """Where the body of each record begins (its attributes byte) and ends. `parts` are the batches: first position, end
    position, number of records."""
    spans: list[tuple[Ints, Ints]] = []
    walked: list[int] = []
    for begin, limit, records in parts:
        pos, left = begin, records
        while left > 0:
            run = _run(payload, raw, pos, limit, left)
            if run is None:
                count = min(left, _STRIDE)
                pos = _walk(payload, pos, limit, count, walked)
            else:
                if walked:
                    spans.append(_walked(raw, walked))
                    walked = []
                count = len(run[0])
                pos = int(run[1][-1])
                spans.append(run)
            left -= count
        if pos != limit:
            raise invalid_record(f"Incorrect declared batch size, {limit - pos} bytes left after {records} records")
    if walked:
        spans.append(_walked(raw, walked))
    if len(spans) == 1:
        return spans[0]
    return np.concatenate([begin for begin, _ in spans]), np.concatenate([end for _, end in spans])


def _run(payload: memoryview | bytes, raw: Bytes, pos: int, limit: int, left: int) -> tuple[Ints, Ints] | None:
    """The next records of equal size, found without a loop: each begins where the previous record ends, and has the
    same length prefix.
    """
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
    for at in range(prefix):  # one byte of all records at a time
        different = raw[pos + at : pos + count * stride : stride] != raw[pos + at]
        first = int(different.argmax())
        if different[first]:
            count = first
    if count < _RUN:
        return None
    begins: Ints = np.arange(count, dtype=np.int64) * stride + begin
    return begins, begins + length


def _walk(payload: memoryview | bytes, pos: int, limit: int, count: int, walked: list[int]) -> int:
    """Add where the next `count` records begin to `walked`; the position after them."""
    add = walked.append
    try:
        for _ in range(count):
            add(pos)
            byte = payload[pos]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1 + length
            else:
                second = payload[pos + 1]
                if second < 0x80:
                    length = (((byte & 0x7F) | (second << 7)) >> 1) ^ -(byte & 1)
                    pos += 2 + length
                else:
                    length, begin = read_varint(payload, pos)
                    pos = begin + length
            if length < 0 or pos > limit:
                raise invalid_record(f"Invalid record size: expected {length} bytes in record payload")
    except IndexError:
        raise invalid_record("Found invalid record structure: the batch ends inside a record") from None
    return pos


def _walked(raw: Bytes, at: list[int]) -> tuple[Ints, Ints]:
    """The same result as `_run`, for whole records that begin at `at`."""
    length, begins = varints(raw, np.array(at, np.int64))
    return begins, begins + length


def varints(raw: Bytes, pos: Ints) -> tuple[Ints, Ints]:
    """The zigzag varints at the positions `pos`, and the positions after them; IndexError past the end."""
    byte = raw[pos]
    pos = pos + 1
    more = byte >= 0x80
    if not more.any():
        return _zigzag(byte.astype(np.int64)), pos
    if more.all():
        second = raw[pos]
        if not (second >= 0x80).any():
            return _zigzag((byte & 0x7F) | (second.astype(np.int64) << 7)), pos + 1
    value = (byte & 0x7F).astype(np.uint64)
    unfinished = np.flatnonzero(more)
    shift = 7
    while unfinished.size:
        if shift > 63:
            raise invalid_record("Varint is too long, the most significant bit in the 10th byte is set")
        byte = raw[pos[unfinished]]
        value[unfinished] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        pos[unfinished] += 1
        unfinished = unfinished[byte >= 0x80]
        shift += 7
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), pos


def _zigzag(value: Ints) -> Ints:
    """Of small values, which are positive as they are."""
    signed: Ints = (value >> 1) ^ -(value & 1)
    return signed
