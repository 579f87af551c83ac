"""Connections of the HTTP servers: so many and no more, and none that keeps a place without asking for anything.

uvicorn has no limit for a peer that connects and sends nothing, or sends a head or a body byte by byte. Here a head has
`HEAD_S` seconds, a body and a peer that does not read its answer have `BODY_S`, and at `MAX_CONNECTIONS` the connection
that has waited longest for its peer makes room for the new one. A connection whose request is being answered stays.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 500
HEAD_S = 10.0
BODY_S = 60.0


def bounded_protocol(
    max_connections: int = MAX_CONNECTIONS, head_s: float = HEAD_S, body_s: float = BODY_S
) -> type[H11Protocol]:
    """The HTTP protocol of uvicorn with these limits: one class for each server (`uvicorn.Config(http=...)`)."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    waiting: dict[Bounded, None] = {}
    """Connections that wait for their peer, the oldest first."""

    class Bounded(H11Protocol):
        _state = "new"
        _since = 0.0
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                oldest = next(iter(waiting), self)
                waiting.pop(oldest, None)  # now, not when its end is heard of: more may come before
                oldest._state = "lost"
                oldest.transport.abort()
            self._look()
            self._timer = self.loop.call_later(head_s, self._check)

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
            """Note what the connection waits for, and since when."""
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

    return Bounded
