"""Which leader epoch began at which offset: `leader-epoch-checkpoint`, in Kafka's text format.

The entries locate the offset where two logs diverge, and name snapshots. They stay in memory; every change writes the
whole file.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.env.seams import Storage

FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    def __init__(self, storage: Storage, log_dir: str) -> None:
        self._storage = storage
        self._path = f"{log_dir}/{FILE_NAME}"
        self.entries: list[tuple[int, int]] = []
        """(epoch, start offset), both rising."""

    def rebuild(self, entries: list[tuple[int, int]]) -> None:
        """Replace the entries by those of the log's batches; the file is a copy of them."""
        if entries != self.entries or not self._storage.exists(self._path):
            self.entries = entries
            self._write()

    def assign(self, epoch: int, start_offset: int) -> None:
        if self.entries and self.entries[-1][0] >= epoch:
            return
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self._write()

    def truncate_end(self, end_offset: int) -> None:
        entries = [entry for entry in self.entries if entry[1] < end_offset]
        if entries != self.entries:
            self.entries = entries
            self._write()

    def truncate_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`; the epoch that covers `start_offset` now begins there."""
        index = bisect_right([start for _, start in self.entries], start_offset) - 1
        if index > 0 or (index == 0 and self.entries[0][1] < start_offset):
            self.entries = [(self.entries[index][0], start_offset), *self.entries[index + 1 :]]
            self._write()

    def last_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else 0

    def epoch_at(self, offset: int) -> int:
        """The epoch that the record at `offset` was written in."""
        epoch = 0
        for candidate, start in self.entries:
            if start > offset:
                break
            epoch = candidate
        return epoch

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch of this log that is not above `epoch`, and where it ends; (0, -1) when all are above."""
        largest_epoch, end_offset = 0, -1
        for index, (candidate, _) in enumerate(self.entries):
            if candidate > epoch:
                break
            largest_epoch = candidate
            end_offset = self.entries[index + 1][1] if index + 1 < len(self.entries) else log_end_offset
        return largest_epoch, end_offset

    def _write(self) -> None:
        lines = ["0", str(len(self.entries)), *(f"{epoch} {start}" for epoch, start in self.entries)]
        self._storage.write_atomic(self._path, ("\n".join(lines) + "\n").encode())
