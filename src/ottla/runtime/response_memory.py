"""`ottla.response.max.queued.bytes`: the memory of answers that peers have not read yet, over all clients' connections.

An answer that its socket does not accept at once waits in memory. Above the limit, the connection whose answer has
waited longest is closed, so that peers that never read cannot fill the node's memory. A single answer may be larger
than the limit. Parts of log files that leave by sendfile do not count.
"""

from __future__ import annotations

from typing import Protocol


class Writer(Protocol):
    """A channel."""

    def refuse_unread(self) -> None:
        """Close the connection."""


class ResponseMemory:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[Writer, int] = {}
        """The answer that has waited longest comes first."""
        self.total = 0

    def hold(self, writer: Writer, size: int) -> None:
        """An answer starts to wait. May close other connections."""
        self._held[writer] = size
        self.total += size
        while self.total > self._limit and len(self._held) > 1:
            longest = next(iter(self._held))
            self.release(longest)
            longest.refuse_unread()

    def release(self, writer: Writer) -> None:
        """The answer has left, or its connection is closed."""
        self.total -= self._held.pop(writer, 0)
