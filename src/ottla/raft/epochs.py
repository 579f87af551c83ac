"""The leader epochs of the metadata log: the entries and their `leader-epoch-checkpoint`, in Kafka's text format.

The entries locate the offset where two logs diverge, and name snapshots. They stay in memory; every change writes the
whole file and syncs it, because the quorum counts what the file holds as durable.
"""

from __future__ import annotations

from ottla.env.seams import Storage
from ottla.model.epoch_entries import EpochEntries

FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    def __init__(self, storage: Storage, log_dir: str) -> None:
        self._storage = storage
        self._path = f"{log_dir}/{FILE_NAME}"
        self._entries = EpochEntries()

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), both rising."""
        return self._entries.as_list()

    def rebuild(self, entries: list[tuple[int, int]]) -> None:
        """Replace the entries by those of the log's batches; the file is a copy of them."""
        if self._entries.replace(entries) or not self._storage.exists(self._path):
            self._write()

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch of `epoch` was appended at `start_offset`. Epochs of the metadata log never go back."""
        if epoch > self._entries.latest_epoch and self._entries.assign(epoch, start_offset):
            self._write()

    def truncate_from_end(self, end_offset: int) -> None:
        if self._entries.truncate_from_end(end_offset):
            self._write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`; the epoch that covers `start_offset` now begins there."""
        if self._entries.truncate_from_start(start_offset):
            self._write()

    def last_epoch(self) -> int:
        """0 in an empty log."""
        return max(self._entries.latest_epoch, 0)

    def epoch_at(self, offset: int) -> int:
        """The epoch that the record at `offset` was written in; 0 before the first entry."""
        return max(self._entries.epoch_for_offset(offset), 0)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch of this log that is not above `epoch`, and where it ends; (0, -1) when all are above."""
        floor_epoch, end_offset = self._entries.floor(epoch)
        if floor_epoch is None:
            return 0, -1
        return floor_epoch, log_end_offset if end_offset is None else end_offset

    def _write(self) -> None:
        entries = self._entries.as_list()
        lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        self._storage.write_atomic(self._path, ("\n".join(lines) + "\n").encode())
