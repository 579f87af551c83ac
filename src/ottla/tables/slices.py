"""Slices of one buffer as an Arrow binary array, copied once: whole runs where they lie at equal distances, else by
Arrow.

Copying a run takes long and releases Python's lock, so a thread can copy while another thread computes the next slices.
A caller that wants this passes a `Later`, and reads the array only after `Later` has run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.tables.positions import Bytes, Ints

Later = Callable[[Callable[[], None]], object]
"""Runs the given work, now or in another thread."""
_FEW_BYTES = 256 * 1024
"""Less is copied at once."""
_FEW_RUNS = 4
"""Slices are copied run by run where a run has at least 2 ** 4 of them on average."""


def at_once(work: Callable[[], None]) -> None:
    work()


def binary(buffer: pa.Buffer, raw: Bytes, at: Ints, length: Ints, later: Later = at_once) -> pa.Array:
    """A negative length is a null. `raw` is `buffer` as numpy sees it."""
    rows = len(at)
    nulls = length < 0
    if nulls.any():
        return pa.nulls(rows, pa.binary()) if nulls.all() else _taken(buffer, at, length, nulls)
    breaks = _breaks(at, length)
    if len(breaks) > rows >> _FEW_RUNS:
        return _taken(buffer, at, length, None)
    return _copied_runs(raw, at, length, breaks, later)


def _taken(buffer: pa.Buffer, at: Ints, length: Ints, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    """The slices and the gaps between them form an array over the unchanged buffer; every second element is a slice."""
    rows = len(at)
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2] = at
    offsets[1::2] = at + np.maximum(length, 0)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), buffer])
    even = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return pieces.take(pa.array(even, mask=nulls))


def _breaks(at: Ints, length: Ints) -> Ints:
    """Where a run of slices with one length and one distance ends: the index of the next one."""
    distance = at[1:] - at[:-1]
    same = length[1:] == length[:-1]
    same[1:] &= distance[1:] == distance[:-1]
    return np.flatnonzero(~same) + 1


def _copied_runs(raw: Bytes, at: Ints, length: Ints, breaks: Ints, later: Later) -> pa.Array:
    """Slices that lie at equal distances are copied together."""
    rows = len(at)
    offsets = np.empty(rows + 1, np.int32)
    offsets[0] = 0
    np.cumsum(length, out=offsets[1:])
    copy = pa.allocate_buffer(int(offsets[-1]))
    runs: list[tuple[Bytes, Bytes]] = []
    for first, last in pairwise([0, *breaks.tolist(), rows]):
        count, size, begin = last - first, int(length[first]), int(at[first])
        stride = int(at[first + 1]) - begin if count > 1 else size
        to: Bytes = np.ndarray((count, size), np.uint8, copy, int(offsets[first]))
        runs.append((to, np.ndarray((count, size), np.uint8, raw, begin, (stride, 1))))
    (later if copy.size > _FEW_BYTES else at_once)(partial(_copy, runs))
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), copy])


def _copy(runs: list[tuple[Bytes, Bytes]]) -> None:
    for to, source in runs:
        to[:] = source
    runs.clear()  # views into the buffer that was read
