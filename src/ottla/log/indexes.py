"""The sparse indexes of a segment: `.index` (offset -> position) and `.timeindex` (timestamp -> offset).

Entries are fixed-size and append-only. The last few entries stay in memory until `flush`, which the segment calls when
it rolls, closes or is synced. No write here is urgent, because a lost index is rebuilt from the log. Lookups bisect the
file with small reads and keep the last piece that they read, for a reader that continues there. A file that Kafka
preallocated and left with trailing zeros counts only to its last entry.
"""

from __future__ import annotations

import contextlib
import errno
from struct import Struct

from ottla.env.seams import File, Storage
from ottla.model.ids import NO_TIMESTAMP, Offset, TimestampMs

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_pack_offset = _OFFSET_ENTRY.pack
_pack_time = _TIME_ENTRY.pack
_TAIL_BYTES = 4096
"""Write the tail out when it has grown to this size: about 2 MB of log at the default interval."""
_WINDOW_BYTES = 4 * 1024
"""A lookup narrows the file down to this much with reads of one entry, then reads the rest at once and keeps it."""


class _Index:
    """Slots of two rising numbers: the file's entries first, then those in memory."""

    __slots__ = ("_kept", "_kept_first", "_storage", "_tail", "_written", "base_offset", "path")

    ENTRY: Struct

    def __init__(self, storage: Storage, path: str, base_offset: Offset) -> None:
        self._storage = storage
        self.path = path
        self.base_offset = base_offset
        self._tail = bytearray()
        self._kept = b""
        """Entries of the file from slot `_kept_first` on; they do not change until they are cut off."""
        self._kept_first = 0
        self._written = self._valid_bytes()

    def __len__(self) -> int:
        return (self._written + len(self._tail)) // self.ENTRY.size

    def _valid_bytes(self) -> int:
        try:
            size = self._storage.size(self.path)
        except FileNotFoundError:
            return 0
        entry = self.ENTRY.size
        count = size // entry
        if count == 0:
            return 0
        file = self._storage.open(self.path)
        try:
            if any(file.pread(entry, (count - 1) * entry)):
                return count * entry
            low, high = 0, count - 1
            while low < high:
                middle = (low + high) // 2
                if any(file.pread(entry, middle * entry)):
                    low = middle + 1
                else:
                    high = middle
            return low * entry
        finally:
            file.close()

    def _spill(self) -> None:
        """Write a long tail. The batch is in the log already: a full disk must not turn its append into a failure."""
        with contextlib.suppress(OSError):
            self.flush()

    def _slot(self, file: File | None, index: int) -> tuple[int, int]:
        at = index * self.ENTRY.size
        if at >= self._written or file is None:
            first, second = self.ENTRY.unpack_from(self._tail, at - self._written)
        else:
            data = file.pread(self.ENTRY.size, at)
            if len(data) != self.ENTRY.size:
                raise OSError(errno.EIO, f"{self.path} ends before its entry {index}")
            first, second = self.ENTRY.unpack(data)
        return first, second

    def _floor(self, target: int, field: int) -> tuple[int, tuple[int, int]] | None:
        """The last slot whose `field` is <= `target`, with its number."""
        size, unpack = self.ENTRY.size, self.ENTRY.unpack_from
        data: bytes | bytearray = self._tail
        first = self._written // size
        if not data or unpack(data, 0)[field] > target:
            if first == 0:
                return None
            data = self._kept
            if not data or not unpack(data, 0)[field] <= target < unpack(data, len(data) - size)[field]:
                data = self._kept = self._window(target, field)
            first = self._kept_first
        low, high = 0, len(data) // size
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * size)[field] <= target:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return None
        key, position = unpack(data, (low - 1) * size)
        return first + low - 1, (key, position)

    def _window(self, target: int, field: int) -> bytes:
        """A part of the file that holds the last slot whose `field` is <= `target`, if there is one."""
        size = self.ENTRY.size
        low, high = 0, self._written // size
        file = self._storage.open(self.path)
        try:
            while (high - low) * size > _WINDOW_BYTES:
                middle = (low + high) // 2
                if self._slot(file, middle)[field] <= target:
                    low = middle
                else:
                    high = middle
            data = file.pread((high - low) * size, low * size)
        finally:
            file.close()
        if len(data) != (high - low) * size:
            raise OSError(errno.EIO, f"{self.path} ends before its entry {high - 1}")
        self._kept_first = low
        return data

    def _last(self) -> tuple[int, int] | None:
        count = len(self)
        if count == 0:
            return None
        if self._tail:
            return self._slot(None, count - 1)
        file = self._storage.open(self.path)
        try:
            return self._slot(file, count - 1)
        finally:
            file.close()

    def _truncate_entries(self, count: int) -> None:
        self.flush()
        self._written = count * self.ENTRY.size
        self._trim()

    def _trim(self) -> None:
        self._kept = b""
        file = self._storage.open(self.path, create=True)
        try:
            if file.size() != self._written:
                file.truncate(self._written)
        finally:
            file.close()

    def flush(self) -> None:
        """Write what is only in memory; the file then ends with the last entry."""
        if not self._tail:
            return
        file = self._storage.open(self.path, create=True)
        try:
            # A copy: the error of a full disk keeps its frames, and with them a hold on what they were writing.
            file.pwrite(bytes(self._tail), self._written)
            self._written += len(self._tail)
            self._tail.clear()
            if file.size() != self._written:
                file.truncate(self._written)
        finally:
            file.close()

    def reset(self) -> None:
        """Forget everything, in the file as well."""
        self._tail.clear()
        self._written = 0
        self._trim()


class OffsetIndex(_Index):
    """Last offset of an indexed batch, relative to the base offset, and the position where that batch begins."""

    __slots__ = ()

    ENTRY = _OFFSET_ENTRY

    def append(self, offset: Offset, position: int) -> int:
        """Add an entry; the size with one more, which `segment.index.bytes` limits."""
        tail = self._tail
        tail += _pack_offset(offset - self.base_offset, position)
        if len(tail) >= _TAIL_BYTES:
            self._spill()
        return self._written + len(tail) + _OFFSET_ENTRY.size

    def lookup(self, offset: Offset) -> int:
        """Where to start looking for `offset`: the position of the last entry at or below it, else 0."""
        floor_slot = self._floor(offset - self.base_offset, 0)
        return floor_slot[1][1] if floor_slot is not None else 0

    def floor_entry(self, offset: Offset) -> tuple[Offset, int]:
        """The last entry at or below `offset`: the last offset of a batch and its position; (-1, 0) without one."""
        floor_slot = self._floor(offset - self.base_offset, 0)
        return (self.base_offset + floor_slot[1][0], floor_slot[1][1]) if floor_slot is not None else (-1, 0)

    def floor_position(self, position: int) -> int:
        """The largest indexed position at or below `position`, else 0."""
        floor_slot = self._floor(position, 1)
        return floor_slot[1][1] if floor_slot is not None else 0

    def offset_at_or_after(self, position: int) -> Offset | None:
        """The offset of the first entry whose position is not below `position`; None behind the last."""
        below = self._floor(position - 1, 1)
        index = 0 if below is None else below[0] + 1
        if index >= len(self):
            return None
        file = self._storage.open(self.path) if index * self.ENTRY.size < self._written else None
        try:
            return self.base_offset + self._slot(file, index)[0]
        finally:
            if file is not None:
                file.close()

    @property
    def last_offset(self) -> Offset:
        last = self._last()
        return self.base_offset + (last[0] if last is not None else 0)

    def is_sane(self, log_size: int) -> bool:
        """The last entry is not before the base and points into the log."""
        last = self._last()
        return last is None or (last[0] >= 0 and 0 <= last[1] < log_size)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at or after `offset`."""
        floor_slot = self._floor(offset - self.base_offset - 1, 0)
        self._truncate_entries(floor_slot[0] + 1 if floor_slot is not None else 0)


class TimeIndex(_Index):
    """Largest timestamp so far and the last offset of the batch that carries it."""

    __slots__ = ("_latest",)

    ENTRY = _TIME_ENTRY

    def __init__(self, storage: Storage, path: str, base_offset: Offset) -> None:
        super().__init__(storage, path, base_offset)
        self._latest = self.last_entry()[0]

    def maybe_append(self, timestamp: TimestampMs, offset: Offset) -> int:
        """Entries only rise: a timestamp at or below the latest entry adds nothing.

        Returns the size of the index with two more entries: the next entry, and the entry that rolling or closing adds.
        """
        tail = self._tail
        if timestamp > self._latest:
            self._latest = timestamp
            tail += _pack_time(timestamp, offset - self.base_offset)
            if len(tail) >= _TAIL_BYTES:
                self._spill()
        return self._written + len(tail) + 2 * _TIME_ENTRY.size

    def last_entry(self) -> tuple[TimestampMs, Offset]:
        last = self._last()
        return (last[0], self.base_offset + last[1]) if last is not None else (NO_TIMESTAMP, self.base_offset)

    def lookup(self, timestamp: TimestampMs) -> Offset:
        """The offset of the last entry at or below `timestamp`, else the base offset."""
        floor_slot = self._floor(timestamp, 0)
        return self.base_offset + (floor_slot[1][1] if floor_slot is not None else 0)

    def is_sane(self) -> bool:
        last = self._last()
        return last is None or (last[0] >= 0 and last[1] >= 0)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries whose offset is at or after `offset`."""
        floor_slot = self._floor(offset - self.base_offset - 1, 1)
        self._truncate_entries(floor_slot[0] + 1 if floor_slot is not None else 0)
        self._latest = self.last_entry()[0]

    def reset(self) -> None:
        super().reset()
        self._latest = NO_TIMESTAMP
