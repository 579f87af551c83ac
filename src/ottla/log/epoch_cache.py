"""Which leader epoch began at which offset: the leader epoch cache and its `leader-epoch-checkpoint`.

Entries rise in both epoch and start offset. The file is rewritten at each change without a sync. After a crash,
recovery reads the epochs again from the batches past the recovery point. A flush syncs the file before the recovery
point moves. The file may fall behind the cache when the disk refuses a write (`unwritten`); the log writes it before
the next append.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.env.seams import Storage
from ottla.log.checkpoints import CorruptCheckpointError, decode_lines, encode_lines, write_unsynced
from ottla.log.file_names import LEADER_EPOCH_CHECKPOINT
from ottla.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

NO_EPOCH_OFFSET = -1
"""The end offset of an epoch that the cache has no entry for."""


class EpochCache:
    __slots__ = ("_entries", "_storage", "directory", "dirty", "latest_epoch", "unwritten")

    def __init__(
        self, storage: Storage, directory: str, entries: list[tuple[LeaderEpoch, Offset]] | None = None
    ) -> None:
        self._storage = storage
        self.directory = directory
        self._entries = entries or []
        self.latest_epoch: LeaderEpoch = self._entries[-1][0] if self._entries else NO_LEADER_EPOCH
        self.dirty = False
        """Changed since the file was last synced."""
        self.unwritten = False
        """Changed since the file was last written."""

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(self._entries)

    @property
    def path(self) -> str:
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Note that `epoch` starts at `start_offset` unless it is the latest; later conflicting entries go."""
        entries = self._entries
        if entries:
            latest_epoch, latest_start = entries[-1]
            if latest_epoch == epoch and start_offset >= latest_start:
                return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset} cannot be")
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        return self._changed()

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Drop the entries that start at or after `end_offset`."""
        entries = self._entries
        if not entries or entries[-1][1] < end_offset:
            return False
        while entries and entries[-1][1] >= end_offset:
            entries.pop()
        return self._changed()

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Drop what ended before `start_offset`; the epoch in force there now starts there."""
        kept = bisect_right(self._entries, start_offset, key=_start_of)
        if kept == 0 or (kept == 1 and self._entries[0][1] == start_offset):
            return False
        self._entries[:kept] = [(self._entries[kept - 1][0], start_offset)]
        return self._changed()

    def clear(self) -> bool:
        if not self._entries:
            return False
        self._entries.clear()
        return self._changed()

    def _changed(self) -> bool:
        self.latest_epoch = self._entries[-1][0] if self._entries else NO_LEADER_EPOCH
        self.dirty = self.unwritten = True
        return True

    def restore(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        """Take back a change: the entries are what they were before, and so is the file, or it is `unwritten`."""
        self._entries = list(entries)
        self._changed()

    def replace_by(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        """Take entries that the file holds already, synced."""
        self._entries = list(entries)
        self._changed()
        self.dirty = self.unwritten = False

    def assign_and_write(self, starts: list[tuple[LeaderEpoch, Offset]]) -> None:
        """Note epochs before their first batch is written. After an OSError the cache is what it was."""
        before = self.entries
        for epoch, offset in starts:
            if epoch >= 0:
                self.assign(epoch, offset)
        try:
            self.write_changes()
        except OSError:
            self.restore(before)
            raise

    def correct(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """A batch of `epoch` stands in the log at `offset`. The caller passes batches by rising offset.

        A later epoch that starts at or before the batch belongs to a part of the log that was cut: its entry is
        removed. Entries that agree stay as they are, because compaction may have removed the batch that an epoch
        started with.
        """
        entries = self._entries
        at = bisect_right(entries, offset, key=_start_of)
        first = at
        while first > 0 and entries[first - 1][0] > epoch:
            first -= 1
        if first < at:
            del entries[first:at]
            self._changed()
        if (entries[first - 1][0] if first > 0 else NO_LEADER_EPOCH) >= epoch:
            return
        while first < len(entries) and entries[first][0] <= epoch:
            del entries[first]
        entries.insert(first, (epoch, offset))
        self._changed()

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `epoch` and its end offset; (-1, -1) in an empty cache, for epoch -1 and for a future
        epoch.
        """
        entries = self._entries
        if epoch == NO_LEADER_EPOCH or not entries or epoch > entries[-1][0]:
            return NO_LEADER_EPOCH, NO_EPOCH_OFFSET
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        higher = bisect_right(entries, epoch, key=_epoch_of)
        floor_epoch = entries[higher - 1][0] if higher > 0 else epoch
        return floor_epoch, entries[higher][1]

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`; -1 before the first entry."""
        index = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[index - 1][0] if index > 0 else NO_LEADER_EPOCH

    def write(self) -> None:
        """Write the file, without a sync."""
        write_unsynced(self._storage, self.path, encode_lines(f"{epoch} {start}" for epoch, start in self._entries))
        self.unwritten = False

    def write_changes(self) -> None:
        if self.unwritten:
            self.write()


def _epoch_of(entry: tuple[LeaderEpoch, Offset]) -> LeaderEpoch:
    return entry[0]


def _start_of(entry: tuple[LeaderEpoch, Offset]) -> Offset:
    return entry[1]


def read_epoch_cache(storage: Storage, directory: str) -> EpochCache:
    """CorruptCheckpointError when the file is damaged, missing or empty; the caller rebuilds it from the batches then."""
    path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    cache = EpochCache(storage, directory)
    try:
        data = storage.read_bytes(path)
        if not data:
            raise CorruptCheckpointError(f"{path} is empty")
        for epoch, start in decode_lines(path, data, 2):
            cache.assign(int(epoch), int(start))
    except FileNotFoundError as error:
        raise CorruptCheckpointError(f"{path} is missing") from error
    except CorruptCheckpointError:
        raise
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from error
    cache.dirty = cache.unwritten = False
    return cache
