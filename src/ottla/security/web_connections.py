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
from typing import TYPE_CHECKING, Any

from ottla.env.logging import get_logger

if TYPE_CHECKING:
    import ssl

log = get_logger(__name__)

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
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from ottla.security.web_requests import StrictConnection

    errors = logging.getLogger("uvicorn.error.connections")
    errors.setLevel(logging.ERROR)  # uvicorn's warnings are caused by peers, and have no limit

    waiting: dict[BoundedConnection | Handshake, None] = {}
    """Connections that wait for their peer, the oldest first."""
    handshakes: set[Handshake] = set()

    def make_room(newcomer: BoundedConnection | Handshake, connections: set[Any]) -> None:
        if len(connections) + len(handshakes) > max_connections:
            oldest = next(iter(waiting), newcomer)
            waiting.pop(oldest, None)  # now, not at connection_lost: more connections may come before
            oldest.give_way()

    class BoundedConnection(H11Protocol):
        _state = "new"
        _since = 0.0
        _timer: asyncio.TimerHandle | None = None
        handshake: Handshake | None = None

        def __init__(self, **uvicorns: Any) -> None:
            super().__init__(**uvicorns)
            self.logger = errors
            self.conn = StrictConnection(h11.SERVER)

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if self.handshake is not None:
                self.handshake.end()
            make_room(self, self.connections)
            self._look()
            self._timer = self.loop.call_later(head_s, self._check)

        def give_way(self) -> None:
            self._state = "lost"
            self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
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
            cycle: Any = self.cycle
            if self._state == "lost":
                return
            if cycle is None or cycle.response_complete:
                state = "head"
            elif cycle.more_body:
                state = "body"
            else:
                state = "reader" if self.flow.write_paused else "answer"
            if state == self._state and not answered:
                return
            self._state, self._since = state, self.loop.time()
            waiting.pop(self, None)
            if state != "answer":
                waiting[self] = None

        def _check(self) -> None:
            limit_s = {"head": head_s, "answer": float("inf")}.get(self._state, body_s)
            if self.loop.time() - self._since >= limit_s:
                self.transport.abort()
                return
            self._timer = self.loop.call_later(head_s / 2, self._check)

    class Handshake(asyncio.Protocol):
        """A connection until its TLS handshake is done; then `BoundedConnection` has it."""

        def __init__(self, **uvicorns: Any) -> None:
            self._http = BoundedConnection(**uvicorns)
            self._http.handshake = self

        def connection_made(self, transport: Any) -> None:
            # The plain transport goes before it reads anything; the connection lives on by its second descriptor.
            self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            self._socket.setblocking(False)
            transport.abort()
            self._task = asyncio.ensure_future(self._shake_hands())
            handshakes.add(self)
            waiting[self] = None
            make_room(self, self._http.connections)

        async def _shake_hands(self) -> None:
            loop = asyncio.get_running_loop()
            try:
                await loop.connect_accepted_socket(
                    lambda: self._http, self._socket, ssl=tls, ssl_handshake_timeout=head_s
                )
            except OSError:
                self._socket.close()  # the handshake failed: close without an answer
            finally:
                self.end()

        def end(self) -> None:
            handshakes.discard(self)
            waiting.pop(self, None)

        def give_way(self) -> None:
            self.end()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._task.cancel()
            self._task.add_done_callback(lambda _: self._socket.close())

    return BoundedConnection if tls is None else Handshake
