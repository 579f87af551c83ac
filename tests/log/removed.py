"""Deleted files whose delay is over, removed at once: a node removes them in a thread."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.removals import Removal


def carried_out(removals: Iterable[Removal]) -> int:
    """Returns how many files went."""
    removed = 0
    for removal in removals:
        removal()
        removed += removal.error is None
    return removed
