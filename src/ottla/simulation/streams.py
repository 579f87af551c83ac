"""TCP of the simulated network: connections whose bytes arrive late but in order, or never.

A lost packet is sent again: it costs time and nothing else. A broken link holds all bytes until it works again. A process
that dies leaves its kernel to close its connections. A host without power is silent until it starts again; then its
kernel resets what it does not know. The delays of a connection come from dice of its own: the order in which a process
closes its connections decides nothing.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.loop import SimulatedLoop
    from ottla.simulation.network import FakeNetwork
    from ottla.simulation.world import World

HostAndPort = tuple[str, int]

RETRANSMIT_MS = 60.0
SYN_RETRY_MS = 250.0
"""Shorter than a real kernel's 1 s, as a simulated life is short."""
SLOWEST_MS = 3_000.0
"""A kernel whose packet takes longer has sent another one, which overtakes it. Without this bound a packet of bad weather
would hold a connection back for longer than the healed cluster has to recover."""


class FakeSocket:
    """A socket as the product's listener and channels use it: non-blocking calls and readiness by the loop."""

    def __init__(self, network: StreamNetwork, loop: SimulatedLoop, address: HostAndPort) -> None:
        self._network = network
        self._fd = network.next_fd()
        network.sockets[self._fd] = self
        self.loop = loop
        self.address = address
        self._callback: tuple[Callable[..., object], tuple[Any, ...]] | None = None
        self._notified = False

    @abstractmethod
    def readable(self) -> bool:
        """Whether a read would not block."""

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as of a socket
        """Simulated calls never block."""

    def setsockopt(self, *_options: object) -> None:
        """Nothing to set."""

    def getsockname(self) -> HostAndPort:
        return self.address

    def on_readable(self, loop: SimulatedLoop, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self._callback = (callback, args)
        self.notify()

    def forget_reader(self) -> bool:
        had, self._callback = self._callback is not None, None
        return had

    def notify(self) -> None:
        """Level-triggered, as a selector is."""
        if self._callback is not None and not self._notified and self.readable():
            self._notified = True
            self.loop.call_soon(self._call)

    def _call(self) -> None:
        self._notified = False
        if self._callback is not None and self._fd >= 0:
            callback, args = self._callback
            callback(*args)
            self.notify()

    def close(self) -> None:
        self._network.sockets.pop(self._fd, None)
        self._fd = -1
        self._callback = None


class ListeningSocket(FakeSocket):
    def __init__(self, network: StreamNetwork, loop: SimulatedLoop, address: HostAndPort) -> None:
        super().__init__(network, loop, address)
        self._backlog: deque[StreamSocket] = deque()
        network.ports[address] = self

    def readable(self) -> bool:
        return bool(self._backlog)

    def arrived(self, sock: StreamSocket) -> None:
        self._backlog.append(sock)
        self.notify()

    def accept(self) -> tuple[StreamSocket, HostAndPort]:
        if not self._backlog:
            raise BlockingIOError
        sock = self._backlog.popleft()
        return sock, sock.peer_address

    def close(self) -> None:
        if self._network.ports.get(self.address) is self:
            del self._network.ports[self.address]
        for sock in self._backlog:
            sock.close()
        self._backlog.clear()
        super().close()


class End:
    """One side of a connection."""

    def __init__(self, network: StreamNetwork, loop: SimulatedLoop, dice: random.Random) -> None:
        self.network = network
        self.loop = loop
        self.peer: End
        self.closed = False
        self._dice = dice
        self._last_at = 0.0
        self._under_way: deque[Callable[[], None]] = deque()
        network.ends.setdefault(loop, {})[self] = None

    # What the kernel hands to the process; `received` is overridden.

    @abstractmethod
    def on_data(self, data: bytes) -> None:
        """Bytes have arrived."""

    @abstractmethod
    def on_end(self, error: Exception | None) -> None:
        """The peer has closed, or reset."""

    # On the way

    @property
    def link(self) -> tuple[NodeId, NodeId]:
        return self.loop.host.node_id, self.peer.loop.host.node_id

    def carry(self, action: Callable[[], None]) -> None:
        world = self.network.world
        at_ms = max(self._last_at, world.now_ms + self.network.delay_ms(self.link, self._dice))
        self._last_at = at_ms
        self._under_way.append(action)
        world.call_later(at_ms - world.now_ms, self._arrive)

    def _arrive(self) -> None:
        """The oldest of what is under way arrives, or waits for a link that is broken."""
        if self.link in self.network.broken:
            self.network.world.call_later(RETRANSMIT_MS, self._arrive)
            return
        self._under_way.popleft()()

    def write(self, data: bytes) -> None:
        peer, network = self.peer, self.network
        network.messages += 1

        def arrive() -> None:
            if peer.loop.dead or peer.closed:
                if not peer.loop.dead or network.is_up(peer.loop.address):
                    peer.carry(lambda: self.reset(ConnectionResetError("reset by peer")))
                return
            network.world.note(lambda: _description(self, data))
            peer.on_data(data)

        self.carry(arrive)

    def shut(self, error: Exception | None = None) -> None:
        """Close this side; the peer gets an end of the stream, or a reset."""
        if self.closed:
            return
        self.closed = True
        self.network.ends.get(self.loop, {}).pop(self, None)
        peer = self.peer
        self.carry(lambda: peer.reset(error))

    def reset(self, error: Exception | None) -> None:
        if not self.closed and not self.loop.dead:
            self.on_end(error)

    def silenced(self) -> None:
        """The host lost its power: the peer gets nothing until the host starts again."""
        self.closed = True


def _description(end: End, data: bytes) -> str:
    source, target = end.link
    name = ""
    if isinstance(end, ClientEnd) and len(data) >= 6:
        key = int.from_bytes(data[4:6], "big")
        name = ApiKey(key).name if key in {int(k) for k in ApiKey} else "more"
    return f"{source} -> {target}  {name} {len(data)} bytes {crc32(data):08x}"


class StreamSocket(End, FakeSocket):
    """The accepted side of a connection."""

    def __init__(
        self, network: StreamNetwork, loop: SimulatedLoop, address: HostAndPort, peer: HostAndPort, dice: random.Random
    ) -> None:
        End.__init__(self, network, loop, dice)
        FakeSocket.__init__(self, network, loop, address)
        self.peer_address = peer
        self._received = bytearray()
        self._ended: list[Exception | None] = []

    def readable(self) -> bool:
        return bool(self._received) or bool(self._ended)

    def on_data(self, data: bytes) -> None:
        self._received += data
        self.notify()

    def on_end(self, error: Exception | None) -> None:
        self._ended.append(error)
        self.notify()

    def recv_into(self, target: memoryview) -> int:
        received = self._received
        if received:
            size = min(len(target), len(received))
            target[:size] = received[:size]
            del received[:size]
            return size
        if not self._ended:
            raise BlockingIOError
        if self._ended[0] is not None:
            raise self._ended[0]
        return 0

    def send(self, data: Any, flags: int = 0) -> int:
        del flags
        if self.closed or any(error is not None for error in self._ended):
            raise BrokenPipeError
        self.write(bytes(data))
        return len(data)

    def close(self) -> None:
        self.shut(ConnectionResetError("reset by peer") if self._received else None)
        FakeSocket.close(self)


class ClientEnd(End):
    """The side that connected; a transport hands its bytes to a protocol."""

    transport: FakeTransport | None = None

    def __init__(self, network: StreamNetwork, loop: SimulatedLoop, dice: random.Random) -> None:
        super().__init__(network, loop, dice)
        self._early: list[bytes] = []

    def attach(self, transport: FakeTransport) -> None:
        self.transport = transport
        for data in self._early:
            transport.on_data(data)
        self._early.clear()

    def on_data(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
        else:
            self.transport.on_data(data)

    def on_end(self, error: Exception | None) -> None:
        self.shut()
        if self.transport is not None:
            self.transport.on_end(error)


class FakeTransport(asyncio.Transport):
    def __init__(self, loop: SimulatedLoop, end: ClientEnd, protocol: Any) -> None:
        super().__init__()
        self._loop = loop
        self._end = end
        self._protocol = protocol
        self._lost = False
        protocol.connection_made(self)
        if end.closed:
            self.on_end(ConnectionResetError("reset by peer"))
        end.attach(self)

    def on_data(self, data: bytes) -> None:
        self._loop.call_soon(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if not self._lost:
            self._protocol.data_received(data)

    def on_end(self, error: Exception | None) -> None:
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._end.shut()
            self._protocol.connection_lost(error)

    def write(self, data: Any) -> None:
        if not self._end.closed:
            self._end.write(bytes(data))

    def close(self) -> None:
        self._end.shut()
        self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._end.shut(ConnectionResetError("reset by peer"))
        self._loop.call_soon(self._lose, None)

    def is_closing(self) -> bool:
        return self._lost or self._end.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default

    def pause_reading(self) -> None:
        """The streams of the product are short."""

    def resume_reading(self) -> None:
        """As above."""


class StreamNetwork:
    """The wires between all hosts of a world."""

    def __init__(self, world: World, links: FakeNetwork) -> None:
        """`links`: which of them are broken or clogged, and the weather."""
        self.world = world
        self._links = links
        self.messages = 0
        self.sockets: dict[int, FakeSocket] = {}
        self.ports: dict[HostAndPort, ListeningSocket] = {}
        self.ends: dict[SimulatedLoop, dict[End, None]] = {}
        self.powered: dict[str, bool] = {}
        self._fds = count(1000)
        self._connections = count(1)
        self._half_open: dict[str, list[End]] = {}

    @property
    def broken(self) -> set[tuple[NodeId, NodeId]]:
        return self._links.broken

    def next_fd(self) -> int:
        return next(self._fds)

    def is_up(self, address: str) -> bool:
        return self.powered.get(address, True)

    def delay_ms(self, link: tuple[NodeId, NodeId], dice: random.Random) -> float:
        weather = self._links.weather
        delay = dice.uniform(*weather.delay_ms)
        if weather.slow and dice.random() < weather.slow:
            delay = min(delay * 100, SLOWEST_MS)
        while weather.loss and dice.random() < weather.loss:
            delay += RETRANSMIT_MS
        delay += self._links.lag_ms.get(link, 0.0)
        return delay + max(0.0, self._links.clogged.get(link, 0.0) - self.world.now_ms)

    # ------------------------------------------------------------------------------------------------------- connecting

    def connect(self, loop: SimulatedLoop, target: HostAndPort, connected: asyncio.Future[Any]) -> None:
        number = next(self._connections)
        dice = random.Random(self.world.seed * 1_000_003 + number)  # noqa: S311 - a simulation must be repeatable
        self._try(loop, target, connected, dice, 20_000 + number)

    def _try(
        self, loop: SimulatedLoop, target: HostAndPort, connected: asyncio.Future[Any], dice: random.Random, port: int
    ) -> None:
        if connected.done() or loop.dead:
            return
        host_id = loop.host.node_id
        target_id = int(target[0].rpartition(".")[2])
        there, back = (host_id, target_id), (target_id, host_id)

        def arrive() -> None:
            if there in self.broken or back in self.broken or not self.is_up(target[0]):
                self.world.call_later(SYN_RETRY_MS, lambda: self._try(loop, target, connected, dice, port))
                return
            listening = self.ports.get(target)
            if listening is None:
                delay_ms = self.delay_ms(back, dice)
                self.world.call_later(delay_ms, lambda: _refused(loop, connected))
                return
            client = ClientEnd(self, loop, dice)
            sock = StreamSocket(self, listening.loop, target, (loop.address, port), dice)
            client.peer, sock.peer = sock, client
            sock.carry(lambda: _established(client, connected))
            listening.arrived(sock)

        self.world.call_later(self.delay_ms(there, dice), arrive)

    # ------------------------------------------------------------------------------------------------------------ deaths

    def process_ended(self, loop: SimulatedLoop, *, power: bool) -> None:
        """Close the sockets of a dead loop, as its kernel does; without power nobody does, until the host is back."""
        for address in [address for address, sock in self.ports.items() if sock.loop is loop]:
            del self.ports[address]
        for sock in [sock for sock in self.sockets.values() if sock.loop is loop]:
            FakeSocket.close(sock)
        ends = list(self.ends.pop(loop, ()))
        if power:
            self.powered[loop.address] = False
            self._half_open.setdefault(loop.address, []).extend(ends)
            for end in ends:
                end.silenced()
        else:
            for end in ends:
                end.shut(ConnectionResetError("reset by peer"))

    def power_on(self, address: str) -> None:
        self.powered[address] = True
        for end in self._half_open.pop(address, ()):
            end.closed = False
            end.shut(ConnectionResetError("reset by peer"))


def _established(client: ClientEnd, connected: asyncio.Future[Any]) -> None:
    if client.loop.dead:
        return
    if connected.done():
        client.shut()
    else:
        client.loop.call_soon(_connected, connected, client)


def _connected(connected: asyncio.Future[Any], client: ClientEnd) -> None:
    if connected.done():
        client.shut()
    else:
        connected.set_result(client)


def _refused(loop: SimulatedLoop, connected: asyncio.Future[Any]) -> None:
    def refuse() -> None:
        if not connected.done():
            connected.set_exception(ConnectionRefusedError("connection refused"))

    if not loop.dead:
        loop.call_soon(refuse)
