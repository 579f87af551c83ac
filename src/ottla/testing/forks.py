"""The sockets of a node in a forked child: the child gives up its copies at once.

Otherwise a forked child keeps the listening socket and the connections of a node open after a test has killed the node.
Clients would wait instead of reconnecting, and a restart would find its port in use.
"""

from __future__ import annotations

import os
import socket
import stat
import weakref
from collections.abc import Callable

from ottla.runtime.listener import HangupWatch


class OpenSockets:
    """The descriptors of one node: listening sockets, and connections that clients have opened."""

    def __init__(self) -> None:
        self._listening: list[socket.socket] = []
        self.connections: set[int] = set()
        _NODES.add(self)

    def add(self, sock: socket.socket) -> socket.socket:
        self._listening = [*(other for other in self._listening if other.fileno() >= 0), sock]
        return sock

    def watch(self, hangups: HangupWatch) -> HangupWatch:
        """A watch that also records which connections are open."""
        return _RecordingWatch(hangups, self.connections)

    def give_up(self) -> None:
        """Only in a forked child: each descriptor becomes a descriptor of the null device. The numbers stay taken, because
        the objects of the parent's loop, which the child has too, close them again when Python frees them.
        """
        numbers = {sock.fileno() for sock in self._listening} | self.connections
        null = os.open(os.devnull, os.O_RDWR)
        for number in numbers - {-1}:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.dup2(null, number, inheritable=False)
        os.close(null)


class _RecordingWatch:
    def __init__(self, hangups: HangupWatch, connections: set[int]) -> None:
        self._hangups = hangups
        self._connections = connections

    def watch(self, fd: int, on_hangup: Callable[[], None]) -> None:
        self._connections.add(fd)
        self._hangups.watch(fd, on_hangup)

    def forget(self, fd: int) -> None:
        self._connections.discard(fd)
        self._hangups.forget(fd)

    def close(self) -> None:
        self._hangups.close()


_NODES: weakref.WeakSet[OpenSockets] = weakref.WeakSet()


def _give_up_all() -> None:
    for node in list(_NODES):
        node.give_up()


os.register_at_fork(after_in_child=_give_up_all)
