"""Runs of offsets in one delivery state: the records in flight of a share-partition.

Runs follow each other without gaps or overlaps. A run with a pending write (`change`) stores its earlier state, because
the write may fail.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum


class RecordState(IntEnum):
    """Records store these numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class Run:
    __slots__ = ("change", "deadline_ms", "delivery_count", "first", "last", "member_id", "owner_before", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        member_id: str | None = None,
        deadline_ms: float = 0.0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        """The member that has the run, while it is acquired."""
        self.deadline_ms = deadline_ms
        """When the lock of the member ends, by the monotonic clock."""
        self.change: object | None = None
        self.owner_before: str | None = None

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        return f"{self.first}-{self.last} {self.state.name} x{self.delivery_count} {self.member_id or ''}".rstrip()

    @property
    def is_settled(self) -> bool:
        """No member will get the run any more, and that is durable."""
        return self.state in TERMINAL and self.change is None

    @property
    def is_free(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.change is None

    def cut(self, offset: int) -> Run:
        """Split off the part that begins at `offset`."""
        tail = Run(offset, self.last, self.state, self.delivery_count, self.member_id, self.deadline_ms)
        tail.change, tail.owner_before = self.change, self.owner_before
        self.last = offset - 1
        return tail

    def is_like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.change is other.change
            and (self.state is not RecordState.ACQUIRED or self.deadline_ms == other.deadline_ms)
        )


class Runs:
    """A sorted, gapless list of runs."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def all(self) -> list[Run]:
        return self._runs

    @property
    def last_offset(self) -> int:
        return self._runs[-1].last

    def append(self, run: Run) -> None:
        self._runs.append(run)

    def within(self, first: int, last: int) -> list[Run]:
        """The runs of exactly these offsets, as far as there are any; runs on the edges are split."""
        self._split(first)
        self._split(last + 1)
        begin = bisect_right(self._runs, first - 1, key=lambda run: run.last)
        end = bisect_right(self._runs, last, key=lambda run: run.first)
        return self._runs[begin:end]

    def touching(self, first: int, last: int) -> list[Run]:
        """The runs that share an offset with these; nothing is split."""
        begin = bisect_right(self._runs, first - 1, key=lambda run: run.last)
        end = bisect_right(self._runs, last, key=lambda run: run.first)
        return self._runs[begin:end]

    def drop_before(self, offset: int) -> None:
        self._split(offset)
        del self._runs[: bisect_right(self._runs, offset - 1, key=lambda run: run.last)]

    def drop_settled(self) -> int | None:
        """Take the settled runs off the front; the offset behind them, None when there were none."""
        count = 0
        while count < len(self._runs) and self._runs[count].is_settled:
            count += 1
        if count == 0:
            return None
        end = self._runs[count - 1].last + 1
        del self._runs[:count]
        return end

    def join_neighbours(self) -> None:
        joined: list[Run] = []
        for run in self._runs:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self._runs = joined

    def _split(self, offset: int) -> None:
        index = bisect_right(self._runs, offset, key=lambda run: run.first) - 1
        if index >= 0 and self._runs[index].first < offset <= self._runs[index].last:
            self._runs.insert(index + 1, self._runs[index].cut(offset))
