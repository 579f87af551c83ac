"""The pace of work whose size a peer decides.

A loop over what a peer has sent, or over what an answer to it holds, goes through `paced`. The code that runs such work
sets a Pace for its thread. The Pace counts elements, stops the work at a limit, and may give other work a turn between
two elements. Without a Pace nothing is counted. State that must not change inside a loop is not read through `paced`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Protocol, TypeVar

ItemT = TypeVar("ItemT")

FEW = 8
"""A loop over fewer items need not go through `paced`: the generated codec and the hot path do not count so little."""
GRAIN = 64
"""Units of work between two looks at the Pace."""


class TooMuchWorkError(ValueError):
    """A request, or the answer to it, has more elements than the limit."""


class Pace(Protocol):
    def spend(self, elements: int, units: int) -> None:
        """Count work that is about to be done. May give way to other work; TooMuchWorkError at the limit."""


class _Current(local):
    pace: Pace | None = None


current = _Current()
"""Of this thread. `pace` is read here, and changed by `at_pace` only."""


def paced(items: Collection[ItemT], cost: int = 1) -> Iterable[ItemT]:
    """The same items. `cost` is the work for one item, in units of about a microsecond."""
    pace = current.pace
    if pace is None:
        return items
    count = len(items)
    if count * cost <= GRAIN:
        pace.spend(count, count * cost)
        return items
    return _counted(pace, items, cost)


def _counted(pace: Pace, items: Iterable[ItemT], cost: int) -> Iterator[ItemT]:
    step = max(1, GRAIN // cost)
    ahead = 0
    for item in items:
        if not ahead:
            pace.spend(step, step * cost)
            ahead = step
        ahead -= 1
        yield item


def charge(elements: int) -> None:
    """Count elements that one call of the standard library handles all at once."""
    pace = current.pace
    if pace is not None:
        pace.spend(elements, elements >> 4)


def spend(units: int) -> None:
    """Count work that is not a matter of elements."""
    pace = current.pace
    if pace is not None:
        pace.spend(0, units)


@contextmanager
def at_pace(pace: Pace | None) -> Iterator[None]:
    """Everything inside runs at this pace."""
    before, current.pace = current.pace, pace
    try:
        yield
    finally:
        current.pace = before


class Bounded:
    """A Pace that gives no turns: it stops the work after so many elements."""

    __slots__ = ("_left",)

    def __init__(self, elements: int) -> None:
        self._left = elements

    def spend(self, elements: int, units: int) -> None:  # noqa: ARG002 - only their number counts here
        self._left -= elements
        if self._left < 0:
            raise TooMuchWorkError("more elements than are handled at once")
