"""A listening socket and the channels it accepted: limits, idle connections, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic as system_monotonic
from typing import Protocol

from ottla.broker.connection import Connection
from ottla.broker.dispatch import Dispatcher
from ottla.env.logging import get_logger
from ottla.runtime.buffers import BufferPool
from ottla.runtime.busy_poll import BusyPoll
from ottla.runtime.channel import PRE_AUTHENTICATION_BYTES, Channel
from ottla.runtime.connection_rates import ConnectionRates
from ottla.runtime.descriptors import SocketBudget
from ottla.runtime.listener_security import ListenerSecurity
from ottla.runtime.request_memory import RequestMemory
from ottla.runtime.response_memory import ResponseMemory
from ottla.security.hosts import network_of, plain_address
from ottla.system.hangups import Hangups

log = get_logger(__name__)

_ACCEPTS_PER_TURN = 64
_IDLE_CHECK_SECONDS = 10.0
_OUT_OF_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class ListenerLimits:
    """Kafka's names: max.connections, max.connections.per.ip, connections.max.idle.ms, socket.request.max.bytes; and ours."""

    __slots__ = (
        "busy_poll_us",
        "idle_ms",
        "max_connections",
        "max_connections_per_ip",
        "max_frame",
        "per_ip_overrides",
    )

    def __init__(
        self,
        *,
        max_connections: int,
        max_connections_per_ip: int,
        idle_ms: int,
        max_frame: int,
        per_ip_overrides: Mapping[str, int] | None = None,
        busy_poll_us: int = 0,
    ) -> None:
        self.busy_poll_us = busy_poll_us
        self.per_ip_overrides = {plain_address(host): limit for host, limit in (per_ip_overrides or {}).items()}
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.idle_ms = idle_ms
        self.max_frame = max_frame

    def at_most(self, max_connections: int) -> ListenerLimits:
        """These, with the listener's own max.connections where that is less."""
        return ListenerLimits(
            max_connections=min(self.max_connections, max_connections),
            max_connections_per_ip=self.max_connections_per_ip,
            idle_ms=self.idle_ms,
            max_frame=self.max_frame,
            per_ip_overrides=self.per_ip_overrides,
            busy_poll_us=self.busy_poll_us,
        )

    def of_address(self, host: str) -> int:
        return self.per_ip_overrides.get(host, self.max_connections_per_ip)

    def counted_as(self, host: str) -> str:
        """Under which name the connections of an address count: the owner of an IPv6 network has all of its addresses."""
        return host if host in self.per_ip_overrides else network_of(host)


class HangupWatch(Protocol):
    """Detects connections that were reset (`ottla.system.hangups`)."""

    def watch(self, fd: int, on_hangup: Callable[[], None]) -> None: ...

    def forget(self, fd: int) -> None: ...

    def close(self) -> None: ...


class Listener:
    def __init__(
        self,
        name: str,
        sock: socket.socket,
        dispatcher: Dispatcher,
        pool: BufferPool,
        limits: ListenerLimits,
        security: ListenerSecurity | None = None,
        rates: ConnectionRates | None = None,
        budget: SocketBudget | None = None,
        memory: RequestMemory | None = None,
        answers: ResponseMemory | None = None,
        *,
        privileged: bool = False,
        per_ip: Counter[str] | None = None,
        is_node: Callable[[str], bool] = lambda _host: False,
        watch_hangups: Callable[[asyncio.AbstractEventLoop], HangupWatch] = Hangups,
        monotonic: Callable[[], float] = system_monotonic,
    ) -> None:
        """`per_ip`: the connections of each address or IPv6 network, shared by all listeners of a node, as in Kafka. `is_node`: whether
        the address is one of the cluster's nodes; then the connection may use the reserve of sockets.
        """
        self.name = name
        self.memory = None if privileged else memory
        self.answers = None if privileged else answers
        self._budget = SocketBudget.available(limits.max_connections) if budget is None else budget
        self._privileged = privileged
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        """Refused for their rate: kept waiting, and counted, until they are closed."""
        self._rates = rates
        self._security = security
        self._socket = sock
        self._dispatcher = dispatcher
        self._pool = pool
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._channels: set[Channel] = set()
        self._per_ip: Counter[str] = Counter() if per_ip is None else per_ip
        self._is_node = is_node
        self._from_reserve: set[Channel | socket.socket] = set()
        """Connections of nodes on a listener for all, which took their socket from the reserve."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._hangups = watch_hangups(self._loop)
        self.monotonic = monotonic
        self.busy_poll = BusyPoll(self._loop, limits.busy_poll_us)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def __len__(self) -> int:
        return len(self._channels)

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)
        self._idle_timer = self._loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle)

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    self._pause_accepting(error)
                    return
                raise
            if address is None:  # macOS: the peer has already gone
                sock.close()
                continue
            self._accept(sock, address)

    def _pause_accepting(self, error: OSError) -> None:
        """Out of descriptors: the pending connection stays in the backlog; try again in a second."""
        log.error("accept.failed", listener=self.name, reason=str(error))
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(1.0, self._accept_again)

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _accept(self, sock: socket.socket, address: tuple[str, int]) -> None:
        host = plain_address(address[0])
        per_ip = self._per_ip.get(self._limits.counted_as(host), 0)
        if per_ip >= self._limits.of_address(host) or not self._take_socket(sock, host):
            log.warning("connection.refused", peer=f"{host}:{address[1]}", reason="too many connections")
            sock.close()
            return
        if self._rates is not None and self._too_fast(sock, host, self._rates):
            return
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        channel = self._new_channel(sock)
        security = self._security
        gate = security.new_gate() if security is not None else None
        if security is not None:
            channel.limit_until_login(security.pre_login_bytes or PRE_AUTHENTICATION_BYTES)
        if sock in self._from_reserve:
            self._from_reserve.remove(sock)
            self._from_reserve.add(channel)
        self._channels.add(channel)
        self._per_ip[self._limits.counted_as(host)] += 1
        channel.start(
            Connection(
                self._dispatcher, channel, client_host=host, client_port=address[1], listener=self.name, gate=gate
            )
        )
        self._hangups.watch(channel.fd, channel.on_hangup)

    def _take_socket(self, sock: socket.socket, host: str) -> bool:
        """Whether the budget has a socket. A node of the cluster gets one from the reserve when clients have the rest."""
        if len(self._channels) < self._limits.max_connections and self._budget.take(privileged=self._privileged):
            return True
        if self._privileged or not self._is_node(host) or not self._budget.take_for_node():
            return False
        self._from_reserve.add(sock)
        return True

    def _give_back(self, holder: Channel | socket.socket) -> None:
        if holder in self._from_reserve:
            self._from_reserve.remove(holder)
            self._budget.give_back_for_node()
        else:
            self._budget.give_back(privileged=self._privileged)

    def _too_fast(self, sock: socket.socket, host: str, rates: ConnectionRates) -> bool:
        """Whether the address is over its quota. Then the connection waits and is closed, as in Kafka. Over the node's
        own limit no connection is refused, but the next connection is accepted later.
        """
        now_ms = self._loop.time() * 1000
        wait_ms = rates.on_accepted(host, now_ms)
        if wait_ms > 0:
            log.warning("connection.refused", peer=host, reason="connection_creation_rate is exceeded")
            self._held[sock] = self._loop.call_later(wait_ms / 1000, self._let_go, sock)
            return True
        pause_ms = rates.pause_ms(now_ms)
        if pause_ms > 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(pause_ms / 1000, self._accept_again)
        return False

    def _let_go(self, sock: socket.socket) -> None:
        self._held.pop(sock).cancel()
        sock.close()
        self._give_back(sock)

    def _new_channel(self, sock: socket.socket) -> Channel:
        if self._security is None or self._security.tls is None:
            return Channel(self._loop, sock, self._pool, self._limits.max_frame, self)
        from ottla.runtime.tls_channel import TlsChannel

        return TlsChannel(self._loop, sock, self._pool, self._limits.max_frame, self, self._security.tls)

    def on_bad_frame(self, channel: Channel, reason: str) -> None:
        connection = channel.connection
        log.warning("connection.refused", peer=f"{connection.client_host}:{connection.client_port}", reason=reason)

    def on_closed(self, channel: Channel) -> None:
        self._channels.discard(channel)
        self._give_back(channel)
        self._hangups.forget(channel.fd)
        counted = self._limits.counted_as(channel.connection.client_host)
        self._per_ip[counted] -= 1
        if self._per_ip[counted] <= 0:
            del self._per_ip[counted]

    def _close_idle(self) -> None:
        deadline = self._loop.time() - self._limits.idle_ms / 1000
        for channel in [c for c in self._channels if c.last_active < deadline and not c.connection.busy]:
            channel.close()
        self._idle_timer = self._loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle)

    def stop(self) -> None:
        """Stop accepting and drop every connection."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        for channel in list(self._channels):
            channel.close()
        for sock in list(self._held):
            self._let_go(sock)
        self._hangups.close()


def bind(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """A listening, non-blocking socket. Raises OSError if the address is in use."""
    if not host and socket.has_dualstack_ipv6():
        sock = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    else:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family, backlog=backlog)
    sock.setblocking(False)
    return sock
