"""Which leader epoch began at which offset: the entries of `leader-epoch-checkpoint`, without their file.

Both epoch and start offset rise from entry to entry. The log of a partition (`ottla.log.epoch_cache`) and the metadata
log (`ottla.raft.epochs`) have the same entries; each of them decides when its file is written and synced.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ottla.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset


class EpochEntries:
    __slots__ = ("_entries", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[LeaderEpoch, Offset]] = ()) -> None:
        self._entries = list(entries)
        self.latest_epoch: LeaderEpoch = NO_LEADER_EPOCH
        """-1 without an entry."""
        self._changed()

    def _changed(self) -> bool:
        self.latest_epoch = self._entries[-1][0] if self._entries else NO_LEADER_EPOCH
        return True

    def as_list(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(self._entries)

    # Changes return whether an entry changed.

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

    def replace(self, entries: Iterable[tuple[LeaderEpoch, Offset]]) -> bool:
        entries = list(entries)
        if entries == self._entries:
            return False
        self._entries = entries
        return self._changed()

    def correct(self, epoch: LeaderEpoch, offset: Offset) -> bool:
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
        del entries[first:at]
        if (entries[first - 1][0] if first > 0 else NO_LEADER_EPOCH) >= epoch:
            return first < at and self._changed()
        while first < len(entries) and entries[first][0] <= epoch:
            del entries[first]
        entries.insert(first, (epoch, offset))
        return self._changed()

    # ------------------------------------------------------------------------------------------------ looking up

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`; -1 before the first entry."""
        number = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[number - 1][0] if number > 0 else NO_LEADER_EPOCH

    def floor(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch | None, Offset | None]:
        """The largest epoch <= `epoch`, None below the first, and where the next epoch starts, None after the last."""
        entries = self._entries
        higher = bisect_right(entries, epoch, key=_epoch_of)
        floor_epoch = entries[higher - 1][0] if higher > 0 else None
        return floor_epoch, entries[higher][1] if higher < len(entries) else None


def _epoch_of(entry: tuple[LeaderEpoch, Offset]) -> LeaderEpoch:
    return entry[0]


def _start_of(entry: tuple[LeaderEpoch, Offset]) -> Offset:
    return entry[1]
