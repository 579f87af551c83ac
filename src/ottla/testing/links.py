"""Broken links between nodes: an event loop whose connections to other nodes a test can cut.

A cut link breaks its open connections and refuses new connections, in both directions, until it is healed.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any


class Links:
    """Which nodes reach each other. A port belongs to one node."""

    def __init__(self) -> None:
        self._cut: set[frozenset[int]] = set()
        self._node_of: dict[int, int] = {}
        self._loops: dict[int, LinkedLoop] = {}
        self._lock = threading.Lock()

    def register(self, node: int, ports: Iterable[int]) -> None:
        with self._lock:
            self._node_of |= dict.fromkeys(ports, node)

    def loop_of(self, node: int) -> Callable[[], asyncio.AbstractEventLoop]:
        """What makes the loop of a node, for each of its starts."""

        def new_loop() -> asyncio.AbstractEventLoop:
            loop = LinkedLoop(self, node)
            with self._lock:
                self._loops[node] = loop
            return loop

        return new_loop

    def reaches(self, node: int, port: int) -> bool:
        other = self._node_of.get(port)
        return other is None or frozenset({node, other}) not in self._cut

    def cut(self, node: int, other: int) -> None:
        with self._lock:
            self._cut.add(frozenset({node, other}))
            loops = [self._loops.get(node), self._loops.get(other)]
        for loop in loops:
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(loop.break_connections)

    def heal(self) -> None:
        with self._lock:
            self._cut.clear()

    def cut_links(self) -> list[list[int]]:
        """The two nodes of each cut link."""
        with self._lock:
            return sorted(sorted(link) for link in self._cut)


class LinkedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop. uvloop's loop has no Python method through which its connections go."""

    def __init__(self, links: Links, node: int) -> None:
        super().__init__()
        self._links = links
        self._node = node
        self._to_nodes: weakref.WeakKeyDictionary[asyncio.Transport, int] = weakref.WeakKeyDictionary()

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if not self._links.reaches(self._node, port):
            raise OSError(errno.EHOSTUNREACH, f"the test has cut the link to {host}:{port}")
        transport, protocol = await super().create_connection(protocol_factory, host, port, **options)
        self._to_nodes[transport] = port
        if not self._links.reaches(self._node, port):  # cut meanwhile
            transport.abort()
        return transport, protocol

    def break_connections(self) -> None:
        """Break the connections whose link is cut."""
        for transport, port in list(self._to_nodes.items()):
            if not self._links.reaches(self._node, port):
                transport.abort()
