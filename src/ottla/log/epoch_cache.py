"""Which leader epoch began at which offset: the leader epoch cache and its `leader-epoch-checkpoint`.

Entries rise in both epoch and start offset. The file is rewritten at each change without a sync. After a crash,
recovery reads the epochs again from the batches past the recovery point. A flush syncs the file before the recovery
point moves. The file may fall behind the cache when the disk refuses a write (`unwritten`); the log writes it before
the next append.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.env.seams import Storage
from ottla.log.checkpoints import CorruptCheckpointError, decode_lines, encode_lines, write_unsynced
from ottla.log.file_names import LEADER_EPOCH_CHECKPOINT
from ottla.model.epoch_entries import EpochEntries
from ottla.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

NO_EPOCH_OFFSET = -1
"""The end offset of an epoch that the cache has no entry for."""


class EpochCache:
    __slots__ = ("_entries", "_storage", "directory", "dirty", "latest_epoch", "unwritten")

    def __init__(self, storage: Storage, directory: str, entries: Iterable[tuple[LeaderEpoch, Offset]] = ()) -> None:
        self._storage = storage
        self.directory = directory
        self._entries = EpochEntries(entries)
        self.latest_epoch: LeaderEpoch = self._entries.latest_epoch
        self.dirty = False
        """Changed since the file was last synced."""
        self.unwritten = False
        """Changed since the file was last written."""

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        return self._entries.as_list()

    @property
    def path(self) -> str:
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"

    def _note(self, changed: bool) -> bool:  # noqa: FBT001 - the result of a change of the entries
        if changed:
            self.latest_epoch = self._entries.latest_epoch
            self.dirty = self.unwritten = True
        return changed

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Note that `epoch` starts at `start_offset` unless it is the latest; later conflicting entries go."""
        return self._note(self._entries.assign(epoch, start_offset))

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Drop the entries that start at or after `end_offset`."""
        return self._note(self._entries.truncate_from_end(end_offset))

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Drop what ended before `start_offset`; the epoch in force there now starts there."""
        return self._note(self._entries.truncate_from_start(start_offset))

    def clear(self) -> bool:
        return self._note(self._entries.replace([]))

    def correct(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """A batch of `epoch` stands in the log at `offset` (`EpochEntries.correct`)."""
        self._note(self._entries.correct(epoch, offset))

    def replace_by(self, entries: Iterable[tuple[LeaderEpoch, Offset]]) -> None:
        """Take entries that the file holds already, synced."""
        self._note(self._entries.replace(entries))
        self.dirty = self.unwritten = False

    def assign_and_write(self, starts: Iterable[tuple[LeaderEpoch, Offset]]) -> None:
        """Note epochs before their first batch is written. After an OSError the entries are what they were, and so is
        the file, or the file is `unwritten`.
        """
        before = self._entries.as_list()
        for epoch, offset in starts:
            if epoch >= 0:
                self.assign(epoch, offset)
        try:
            self.write_changes()
        except OSError:
            self._entries.replace(before)
            self._note(True)
            raise

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `epoch` and its end offset; (-1, -1) in an empty cache, for epoch -1 and for a future
        epoch.
        """
        if NO_LEADER_EPOCH in (epoch, self.latest_epoch) or epoch > self.latest_epoch:
            return NO_LEADER_EPOCH, NO_EPOCH_OFFSET
        floor_epoch, end_offset = self._entries.floor(epoch)
        return epoch if floor_epoch is None else floor_epoch, log_end_offset if end_offset is None else end_offset

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`; -1 before the first entry."""
        return self._entries.epoch_for_offset(offset)

    def write(self) -> None:
        """Write the file, without a sync."""
        lines = encode_lines(f"{epoch} {start}" for epoch, start in self._entries.as_list())
        write_unsynced(self._storage, self.path, lines)
        self.unwritten = False

    def write_changes(self) -> None:
        if self.unwritten:
            self.write()


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
