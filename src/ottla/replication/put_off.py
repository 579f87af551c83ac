"""Work on single replicas that a large change of the metadata puts off to later turns of the loop.

A change of a few replicas is handled at once: such a change is done when its publication is done. Each work has a key,
whose first part is the kind of work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from itertools import islice

Key = tuple[str, *tuple[Hashable, ...]]

AT_ONCE = 64
"""Replicas and topics of a change that is handled at once; each may be a folder with files."""
IN_A_TURN = 8
"""Of a larger change, in one turn of the loop."""


class PutOff:
    def __init__(self, on_idle: Callable[[], None]) -> None:
        self.later: Callable[[Callable[[], None]], object] | None = None
        """Calls in the next turn of the loop. With None no work waits."""
        self._on_idle = on_idle
        self._work: dict[Key, Callable[[], None]] = {}
        self._room = AT_ONCE

    def __len__(self) -> int:
        return len(self._work)

    def begin(self, size: int) -> None:
        """A change of the metadata with so many replicas and topics begins."""
        self._room = AT_ONCE if size <= AT_ONCE else IN_A_TURN

    def begin_whole(self) -> None:
        """A change begins whose replicas must all be there at its end."""
        self._room = sys.maxsize

    def put_off(self, key: Key, work: Callable[[], None]) -> bool:
        """Whether `work` is done in a later turn. False: the caller does the work now."""
        self._room -= 1
        if self._room >= 0 or self.later is None:
            return False
        if not self._work:
            self.later(self.next)
        self._work[key] = work
        return True

    def do_now(self, key: Key) -> None:
        """Do the work of that key now, if any waits."""
        work = self._work.pop(key, None)
        if work is not None:
            work()

    def next(self) -> None:
        """One turn."""
        if self.later is None:
            return
        try:
            self._do(list(islice(self._work, IN_A_TURN)))
        finally:  # work that fails must not hold the work behind it
            if self._work:
                self.later(self.next)
            else:
                self._on_idle()

    def finish(self, kind: str) -> None:
        """Do all work of that kind now, and drop other work; from here on no work waits."""
        self.later = None
        work, self._work = self._work, {}
        for key, do in work.items():
            if key[0] == kind:
                do()
        if work:
            self._on_idle()

    def _do(self, keys: list[Key]) -> None:
        self._room = len(keys)
        for key in keys:
            self.do_now(key)
