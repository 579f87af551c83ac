"""The network between the nodes of a cluster, with switches: each node is reached through a proxy that knows who calls.

`cut` two nodes and bytes between them vanish both ways while connections stay open, as in a network that lost a link;
`reset` a node and every connection to it breaks; `delay_ms` slows everything down. Clients are never cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ottla.server.up.cluster import PlannedNode
from tests.support.ports import free_ports

HOST = "127.0.0.1"
CLIENT = 0


class Links:
    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        """`pids` tells which process is which node."""
        self._pids = pids
        self.cut_pairs: set[frozenset[int]] = set()
        self.cut_ways: set[tuple[int, int]] = set()
        """From a node to a node: bytes this way vanish."""
        self.delay_ms = 0.0
        self._writers: dict[int, set[asyncio.StreamWriter]] = {}
        self._owners: dict[int, int] = {}
        """Port of the connecting side -> node, as of the last look; `heal` forgets them, because ports are used again."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []

    def open(self, node: int, port: int, target_port: int) -> None:
        """Whoever connects to `port` is connected to `target_port` of `node`."""

        async def serve() -> None:
            async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(asyncio.CancelledError):  # by `close`
                    await self._carry(node, target_port, reader, writer)

            self._servers.append(await asyncio.start_server(on_connection, HOST, port))

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(60)

    async def _carry(
        self, node: int, target_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        port = writer.get_extra_info("peername")[1]
        try:
            other_reader, other_writer = await asyncio.open_connection(HOST, target_port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, other_writer}
        self._writers.setdefault(node, set()).update(both)
        await asyncio.gather(
            self._pump(reader, other_writer, lambda: (self._owner(port), node)),
            self._pump(other_reader, writer, lambda: (node, self._owner(port))),
        )
        self._writers[node] -= both

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Callable[[], tuple[int, int]]
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                if self._is_cut(way):
                    continue
                if self.delay_ms:
                    await asyncio.sleep(self.delay_ms / 1000)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def _is_cut(self, way: Callable[[], tuple[int, int]]) -> bool:
        """To find out who holds a connection is expensive, and is asked only while some link is cut."""
        if not self.cut_pairs and not self.cut_ways:
            return False
        ends = way()
        return ends in self.cut_ways or frozenset(ends) in self.cut_pairs

    def _owner(self, port: int) -> int:
        """The node whose process holds the connection from `port`, or CLIENT."""
        if port not in self._owners:
            self._owners = {port: CLIENT, **self._owners, **_owners(self._pids())}
        return self._owners[port]

    def isolate(self, node: int, others: list[int]) -> None:
        self.cut_pairs = {frozenset({node, other}) for other in others if other != node}

    def heal(self) -> None:
        self.cut_pairs, self.cut_ways = set(), set()
        self.delay_ms = 0.0
        self._owners = {}

    def reset(self, node: int) -> None:
        def abort() -> None:
            for writer in list(self._writers.get(node, ())):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def close(self) -> None:
        def end() -> None:
            for server in self._servers:
                server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            for writers in self._writers.values():
                for writer in writers:
                    writer.transport.abort()
            self._loop.call_later(0.2, self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join(10)


def put_between(links: Links, nodes: Iterable[PlannedNode]) -> None:
    """Each node listens elsewhere from now on; the ports that all nodes and voters know are the proxies'."""
    for node in nodes:
        real, real_controller = free_ports(2)
        text = node.properties.read_text()
        listeners = f"listeners=PLAINTEXT://{HOST}:{real},CONTROLLER://{HOST}:{real_controller}"
        lines = [listeners if line.startswith("listeners=") else line for line in text.splitlines()]
        node.properties.write_text("\n".join(lines) + "\n")
        links.open(node.id, node.port, real)
        links.open(node.id, node.controller_port, real_controller)


def _owners(pids: dict[int, int]) -> dict[int, int]:
    """Port of each open connection of the processes -> node."""
    ports = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    owners = {}
    for node, pid in pids.items():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    port = ports.get(str(descriptor.readlink()))
                    if port is not None:
                        owners[port] = node
    return owners
