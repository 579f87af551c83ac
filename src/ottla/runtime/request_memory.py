"""`queued.max.request.bytes`: the memory of requests that are being received or handled, over all clients' connections.

As in Kafka, a request reserves its whole size before its bytes are read, if the total is below the limit. So a request
that has begun can always finish, and the total exceeds the limit by one request at most. At the limit, further
connections are not read until a request is done. If a request stalls while others wait, its connection is closed.
Requests of up to 16 KiB, and requests that arrive in one read, reserve nothing.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ottla.env.logging import get_logger

log = get_logger(__name__)

STALLED_SECONDS = 10.0


class Reader(Protocol):
    """A channel."""

    last_active: float

    @property
    def is_receiving(self) -> bool:
        """Whether its request is not all there yet."""
        ...

    def on_memory(self) -> None:
        """Memory has been released: reserve again."""

    def refuse_stalled(self) -> None:
        """Close the connection."""


class RequestMemory:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reserved: dict[Reader, int] = {}
        self._total = 0
        self._waiting: dict[Reader, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def total(self) -> int:
        return self._total

    def reserve(self, reader: Reader, size: int) -> bool:
        """Whether the request may be read. If not, the reader waits for its `on_memory`."""
        if reader in self._reserved:
            self._total += size - self._reserved[reader]
            self._reserved[reader] = size
            return True
        if 0 < self._limit <= self._total:
            self._waiting[reader] = None
            self._watch()
            return False
        self._waiting.pop(reader, None)
        self._reserved[reader] = size
        self._total += size
        return True

    def release(self, reader: Reader) -> None:
        """The request is done, or its connection is closed."""
        self._waiting.pop(reader, None)
        self._total -= self._reserved.pop(reader, 0)
        for waiting in list(self._waiting):
            if self._total >= self._limit:
                break
            if waiting in self._waiting:
                del self._waiting[waiting]
                waiting.on_memory()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._close_stalled)

    def _close_stalled(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        deadline = asyncio.get_running_loop().time() - STALLED_SECONDS
        for reader in [r for r in self._reserved if r.is_receiving and r.last_active < deadline]:
            reader.refuse_stalled()
        if self._waiting:
            self._watch()
