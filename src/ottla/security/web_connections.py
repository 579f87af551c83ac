"""Connections of the HTTP servers: their number is limited, and idle connections do not keep a place.

uvicorn has no limit for a peer that connects and sends nothing, or sends a head or a body byte by byte. Here a peer has
`HEAD_S` seconds to send a head, and `BODY_S` seconds to send a body or to read its answer. At `MAX_CONNECTIONS` the
connection that has waited longest for its peer is closed for the new connection. A connection whose request is being
answered stays open.

TLS starts here too, after the connection was counted: uvicorn sees a connection only when its handshake is done, and
waits a minute for that.

A malformed request (`web_requests.py` has more rules than h11) gets one answer or none, ends its connection, and is
logged in one line of a limited number. The servers offer no upgrade, so `Upgrade` is ignored (RFC 9110, 7.8).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ottla.env.logging import get_logger
from ottla.security.web_requests import StrictConnection

if TYPE_CHECKING:
    import ssl

log = get_logger(__name__)
_uvicorns_errors = logging.getLogger("uvicorn.error.connections")
_uvicorns_errors.setLevel(logging.ERROR)  # uvicorn's warnings are caused by peers, and have no limit

MAX_CONNECTIONS = 500
HEAD_S = 10.0
BODY_S = 60.0


def bounded_protocol(
    max_connections: int = MAX_CONNECTIONS,
    head_s: float = HEAD_S,
    body_s: float = BODY_S,
    tls: ssl.SSLContext | None = None,
) -> type[asyncio.Protocol]:
    """The HTTP protocol of uvicorn with these limits: one class for each server (`uvicorn.Config(http=...)`). With
    `tls` the server uses HTTPS, and uvicorn itself has no certificate.
    """
    limits = Bounds(max_connections, head_s, body_s)

    class Http(BoundedConnection):
        bounds = limits

    class Https(TlsHandshake):
        http_class = Http
        tls_context = tls

    return Http if tls is None else Https


class Yielding(Protocol):
    """A connection that can be closed for a newcomer."""

    def give_way(self) -> None: ...


class Bounds:
    """The limits of one server, and the connections that count against them."""

    def __init__(self, max_connections: int, head_s: float, body_s: float) -> None:
        self.max_connections = max_connections
        self.head_s = head_s
        self.body_s = body_s
        self.waiting: dict[Yielding, None] = {}
        """Connections that wait for their peer, the oldest first."""
        self.handshakes: set[TlsHandshake] = set()

    def make_room(self, newcomer: Yielding, connections: set[Any]) -> None:
        if len(connections) + len(self.handshakes) > self.max_connections:
            oldest = next(iter(self.waiting), newcomer)
            self.waiting.pop(oldest, None)  # now, not at connection_lost: more connections may come before
            oldest.give_way()


class BoundedConnection(H11Protocol):
    bounds: ClassVar[Bounds]
    _state = "new"
    _since = 0.0
    _timer: asyncio.TimerHandle | None = None
    handshake: TlsHandshake | None = None

    def __init__(self, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.logger = _uvicorns_errors
        self.conn = StrictConnection(h11.SERVER)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.handshake is not None:
            self.handshake.end()
        self.bounds.make_room(self, self.connections)
        self._look()
        self._timer = self.loop.call_later(self.bounds.head_s, self._check)

    def give_way(self) -> None:
        self._state = "lost"
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.bounds.waiting.pop(self, None)
        self._state = "lost"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Answers a malformed request once. The application's own answer, begun or not, ends with the connection."""
        log.warning("request.malformed", peer="" if self.client is None else self.client[0])
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look(answered=True)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def _look(self, *, answered: bool = False) -> None:
        """Store what the connection waits for, and since when."""
        if self._state == "lost":
            return
        state = self._waits_for()
        if state == self._state and not answered:
            return
        self._state, self._since = state, self.loop.time()
        self.bounds.waiting.pop(self, None)
        if state != "answer":
            self.bounds.waiting[self] = None

    def _waits_for(self) -> str:
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            return "head"
        if cycle.more_body:
            return "body"
        return "reader" if self.flow.write_paused else "answer"

    def _check(self) -> None:
        limit_s = {"head": self.bounds.head_s, "answer": float("inf")}.get(self._state, self.bounds.body_s)
        if self.loop.time() - self._since >= limit_s:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self.bounds.head_s / 2, self._check)


class TlsHandshake(asyncio.Protocol):
    """A connection until its TLS handshake is done; then an `BoundedConnection` has it."""

    http_class: ClassVar[type[BoundedConnection]]
    tls_context: ClassVar[ssl.SSLContext | None]

    def __init__(self, **uvicorns: Any) -> None:
        self._http = self.http_class(**uvicorns)
        self._http.handshake = self
        self._bounds = self.http_class.bounds

    def connection_made(self, transport: Any) -> None:
        # The plain transport goes before it reads anything; the connection lives on by its second descriptor.
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setblocking(False)
        transport.abort()
        self._task = asyncio.ensure_future(self._shake_hands())
        self._bounds.handshakes.add(self)
        self._bounds.waiting[self] = None
        self._bounds.make_room(self, self._http.connections)

    async def _shake_hands(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self._http, self._socket, ssl=self.tls_context, ssl_handshake_timeout=self._bounds.head_s
            )
        except OSError:
            self._socket.close()  # the handshake failed: close without an answer
        finally:
            self.end()

    def end(self) -> None:
        self._bounds.handshakes.discard(self)
        self._bounds.waiting.pop(self, None)

    def give_way(self) -> None:
        self.end()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._task.cancel()
        self._task.add_done_callback(lambda _: self._socket.close())
