"""Detects connections that were reset, even when the event loop does not report the reset.

libuv on Linux stops watching a socket after the first event that carries an error. When a reset arrives together with
the last bytes, uvloop calls the reader once, for the bytes, and does not report the reset. The connection then stays
until it is idle for connections.max.idle.ms. A separate epoll that asks for no events gets errors and hang-ups only. It
costs one system call for each connection and none for each request.

Systems without epoll (macOS, with kqueue) need no such watch: there libuv goes on watching, and the next read reports the
reset.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Any

_EDGES_ONLY: int = getattr(select, "EPOLLET", 0)


class Hangups:
    """`watch` a descriptor until it is closed; `forget` it then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[], None]] = {}
        epoll: Any = getattr(select, "epoll", None)
        self._epoll = epoll() if epoll is not None else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, fd: int, on_hangup: Callable[[], None]) -> None:
        if self._epoll is not None:
            self._callbacks[fd] = on_hangup
            self._epoll.register(fd, _EDGES_ONLY)

    def forget(self, fd: int) -> None:
        """Closing a descriptor takes it out of the epoll by itself."""
        self._callbacks.pop(fd, None)

    def _on_events(self) -> None:
        if self._epoll is None:
            return
        for fd, _ in self._epoll.poll(0):
            callback = self._callbacks.get(fd)
            if callback is not None:
                callback()

    def close(self) -> None:
        self._callbacks.clear()
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
