"""A bound on open segment files.

Segments open their `.log` when they need it and ask the pool for room. The pool closes the files that have not been
used for longest, by the clock algorithm: a use costs one attribute write. A file that a reader still sends from stays
open until the reader releases it: the last reference closes the file.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from ottla.env.seams import File

DEFAULT_OPEN_FILES = 2048


class SharedFile:
    """An open file as segments, slices and syncs hold it; the file closes itself with its last reference."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file


class Closable(Protocol):
    used: bool

    def release_file(self) -> None: ...


class OpenFiles:
    __slots__ = ("_clock", "capacity")

    def __init__(self, capacity: int = DEFAULT_OPEN_FILES) -> None:
        self.capacity = capacity
        self._clock: OrderedDict[Closable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clock)

    def opened(self, owner: Closable) -> None:
        """`owner` has just opened its file; others give theirs up when there are too many."""
        clock = self._clock
        while len(clock) >= self.capacity:
            candidate, _ = clock.popitem(last=False)
            if candidate.used:
                candidate.used = False
                clock[candidate] = None
            else:
                candidate.release_file()
        owner.used = True
        clock[owner] = None

    def closed(self, owner: Closable) -> None:
        """`owner` released its file by itself (idle after loading, deleted)."""
        self._clock.pop(owner, None)
