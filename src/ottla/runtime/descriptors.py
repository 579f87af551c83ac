"""How this process shares out its file descriptors (RLIMIT_NOFILE).

A flood of connections must not leave the logs without descriptors. A file that cannot be opened looks like a failing
disk, and would take its whole log directory offline.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from typing import NamedTuple, Self

from ottla.log.open_files import DEFAULT_OPEN_FILES

SPARE = 512
"""Indexes, checkpoints and snapshots being written, the loop, listening sockets, slices that are still being sent."""


RESERVE = 128
"""Sockets that clients cannot use; at most a quarter of all sockets."""


class Descriptors(NamedTuple):
    segments: int
    connections: int

    @classmethod
    def available(cls) -> Self:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return cls(DEFAULT_OPEN_FILES, sys.maxsize)
        segments = min(DEFAULT_OPEN_FILES, soft // 4)
        return cls(segments, soft - segments - min(SPARE, soft // 4))


class SocketBudget:
    """The sockets that peers have opened to this node, over all of its listeners and its HTTP server.

    Clients share `clients`. Controllers, brokers on their own listener, and the HTTP server have a reserve on top. So
    a flood of clients blocks neither health checks nor connections between nodes. On a listener for brokers and clients,
    peers with a node's address have half of the reserve: clients may run on that machine too.
    """

    __slots__ = ("_clients", "_nodes", "_privileged", "clients", "reserve")

    def __init__(self, clients: int, reserve: int) -> None:
        self.clients = clients
        self.reserve = reserve
        self._clients = 0
        self._privileged = 0
        self._nodes = 0
        """The privileged sockets of `take_for_node`."""

    @classmethod
    def available(cls, max_connections: int, descriptors: Descriptors | None = None) -> Self:
        """The descriptors of the process without those for its files; at most `max.connections` clients."""
        sockets = (descriptors or Descriptors.available()).connections
        reserve = min(RESERVE, sockets // 4)
        return cls(min(max_connections, sockets - reserve), reserve)

    def __len__(self) -> int:
        return self._clients + self._privileged

    def take(self, *, privileged: bool = False) -> bool:
        """Whether there is room for a socket; if so, the socket counts until `give_back`."""
        if privileged:
            if len(self) >= self.clients + self.reserve:
                return False
            self._privileged += 1
        else:
            # Privileged sockets above the reserve reduce the number that clients may have.
            if self._clients + max(self._privileged - self.reserve, 0) >= self.clients:
                return False
            self._clients += 1
        return True

    def take_for_node(self) -> bool:
        """As `take` of a privileged socket, within half of the reserve."""
        if self._nodes >= self.reserve // 2 or not self.take(privileged=True):
            return False
        self._nodes += 1
        return True

    def give_back_for_node(self) -> None:
        self._nodes -= 1
        self.give_back(privileged=True)

    def give_back(self, *, privileged: bool = False) -> None:
        if privileged:
            self._privileged -= 1
        else:
            self._clients -= 1


_CANDIDATES = (1_048_576, 65_536, 10_240)
"""For a system that does not grant its own hard limit. macOS gives a shell 256 of "unlimited" and refuses more than
kern.maxfilesperproc. 10,240 is OPEN_MAX on macOS, the number that the JVM requests.
"""


def raise_limit() -> None:
    """Raise the soft limit as far as the system allows, as the JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    smaller = [number for number in _CANDIDATES if number > soft and (hard == resource.RLIM_INFINITY or number < hard)]
    for number in (hard, *smaller):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
            return
