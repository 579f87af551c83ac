"""Which leader epoch began at which offset: the leader epoch cache and its `leader-epoch-checkpoint`.

Entries rise in both epoch and start offset. The file is rewritten at each change without a sync: after a crash the
batches past the recovery point tell their epochs again, and a flush syncs the file before the recovery point moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from ottla.env.seams import Storage
from ottla.log.checkpoints import CorruptCheckpointError, decode_lines, encode_lines, write_unsynced
from ottla.log.file_names import LEADER_EPOCH_CHECKPOINT
from ottla.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

NO_EPOCH_OFFSET = -1
"""The end offset of an epoch that the log does not know."""


class EpochCache:
    __slots__ = ("_entries", "dirty", "latest_epoch")

    def __init__(self, entries: list[tuple[LeaderEpoch, Offset]] | None = None) -> None:
        self._entries = entries or []
        self.latest_epoch: LeaderEpoch = self._entries[-1][0] if self._entries else NO_LEADER_EPOCH
        self.dirty = False
        """Changed since the file was last synced."""

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(self._entries)

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
        self.dirty = True
        return True

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `epoch` and where it ends; (-1, -1) when that cannot be told."""
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

    def write(self, storage: Storage, directory: str, *, sync: bool = False) -> None:
        data = encode_lines(f"{epoch} {start}" for epoch, start in self._entries)
        write: Callable[[str, bytes], None] = (
            storage.write_atomic if sync else lambda path, content: write_unsynced(storage, path, content)
        )
        write(f"{directory}/{LEADER_EPOCH_CHECKPOINT}", data)
        if sync:
            self.dirty = False


def _epoch_of(entry: tuple[LeaderEpoch, Offset]) -> LeaderEpoch:
    return entry[0]


def _start_of(entry: tuple[LeaderEpoch, Offset]) -> Offset:
    return entry[1]


def read_epoch_cache(storage: Storage, directory: str) -> EpochCache:
    """CorruptCheckpointError when the file is damaged; the caller rebuilds it from the batches then."""
    path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    cache = EpochCache()
    try:
        for epoch, start in decode_lines(path, storage.read_bytes(path), 2):
            cache.assign(int(epoch), int(start))
    except FileNotFoundError:
        return EpochCache()
    except CorruptCheckpointError:
        raise
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from error
    cache.dirty = False
    return cache
