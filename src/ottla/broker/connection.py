"""One client connection: requests are handled in order, one at a time, as Kafka does by muting a channel.

A request that must wait (a long-poll fetch, a join, a metadata change) makes the connection busy. The channel keeps
further bytes in the socket until the connection is idle again. So a client can hold no more memory than one request.
Nothing here touches a socket: `Peer` is the channel's side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.deferred import Deferred, Resolution, Unfinished
from ottla.env.logging import get_logger
from ottla.model.pace import TooMuchWorkError
from ottla.protocol.primitives import DecodeError, Message, Pieces

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.dispatch import Dispatcher, Route
    from ottla.broker.login.sasl_gate import SaslGate
    from ottla.broker.planes import NodePlane
    from ottla.broker.slices import Job

log = get_logger(__name__)


class Peer(Protocol):
    """The wire side of a connection."""

    def send(self, pieces: Pieces) -> None: ...

    def close(self) -> None: ...

    def resume(self) -> None:
        """The connection is idle again: go on with frames that have arrived meanwhile."""
        ...

    def lift_limits(self) -> None:
        """The peer has shown who it is: it may send requests of the usual size."""
        ...


class CloseConnection(Exception):
    """The peer must be disconnected without an answer; the reason is logged once."""


class Connection:
    __slots__ = (
        "_pending", "authenticated", "busy", "client_host", "client_port", "closed", "dispatcher", "gate", "listener",
        "peer", "principal", "software", "throttle_ms", "token_authenticated", "when_closed",
    )  # fmt: skip

    def __init__(
        self,
        dispatcher: Dispatcher,
        peer: Peer,
        *,
        client_host: str,
        client_port: int,
        listener: str,
        gate: SaslGate | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.peer = peer
        self.client_host = client_host
        self.client_port = client_port
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self.software = ("unknown", "unknown")
        """Name and version of the client, from its ApiVersions."""
        self.gate = gate
        self.authenticated = False
        self.token_authenticated = False
        self.throttle_ms = 0
        """Set by a quota: so long nothing is read from the peer once its answer has left."""
        self.busy = False
        self.closed = False
        """The socket is gone. A large request whose handler had begun still comes to its end."""
        self.when_closed: Callable[[], None] | None = None
        """Called once when the socket is gone: a broker's heartbeats came by it."""
        self._pending: asyncio.Task[None] | Deferred[Any] | asyncio.TimerHandle | Job[Any] | None = None

    def on_frame(self, frame: memoryview) -> None:
        """Handle one request. `frame` is valid only during this call."""
        try:
            self.dispatcher.dispatch(self, frame)
        except Exception as error:  # noqa: BLE001 - a bug in dispatching costs this connection, not the loop
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, DecodeError | CloseConnection | TooMuchWorkError):
            self.refuse(str(error))
            return
        log.error("connection.failed", peer=f"{self.client_host}:{self.client_port}", exc_info=error)
        self.peer.close()

    def wait_for_job(self, job: Job[Any], deliver: Callable[[], None]) -> None:
        """Read nothing until the job is done and its result delivered."""
        self.busy = True
        self._pending = job

        def done() -> None:
            try:
                deliver()
            except Exception as error:  # noqa: BLE001 - as in on_frame
                self._failed(error)
            if self.closed:
                self.on_closed()  # what a handler that had begun has parked or tied to this peer
            elif self._pending is job:  # the answer does not wait for anything else
                self._unmute()

        job.then(done)

    def refuse(self, reason: str) -> None:
        """Disconnect the peer and log the reason, once."""
        log.warning("connection.refused", peer=f"{self.client_host}:{self.client_port}", reason=reason)
        self.peer.close()

    def on_authenticated(self, principal: str, *, token: bool) -> None:
        self.principal = principal
        self.token_authenticated = token
        self.authenticated = True
        self.peer.lift_limits()
        audit = self.dispatcher.broker.audit
        if audit is not None:
            audit.login(principal, self.client_host, self.listener, allowed=True)

    def fail_authentication(self, answer: Pieces | None, reason: str, delay_ms: float) -> None:
        """Refuse a login, but not at once: guessing shall take time. Nothing more is read from the peer."""
        peer = f"{self.client_host}:{self.client_port}"
        log.warning("authentication.failed", peer=peer, listener=self.listener, reason=reason)
        self.busy = True
        audit = self.dispatcher.broker.audit
        if audit is not None:
            audit.login(self.principal, self.client_host, self.listener, allowed=False, reason=reason)

        failed = self.dispatcher.failed_logins
        delay_ms = failed.failed(self.client_host, delay_ms, self.dispatcher.broker.clock.monotonic_ms())
        if delay_ms > 0:
            self.on_gone(lambda: failed.refused(self.client_host))

        def close() -> None:
            self._pending = None
            if answer is not None:
                self.peer.send(answer)
            self.peer.close()

        self._pending = asyncio.get_running_loop().call_later(delay_ms / 1000, close)

    def wait_for(
        self,
        answer: Deferred[Message] | Awaitable[Resolution[Message]],
        route: Route,
        context: RequestContext[NodePlane],
        request: Message,
        correlation_id: int,
    ) -> None:
        self.busy = True
        if isinstance(answer, Deferred):
            self._pending = answer
            answer.then(lambda response: self._answer(response, route, context, correlation_id))
            return
        task = self._pending = asyncio.ensure_future(self._finish(answer, route, context, request, correlation_id))
        if isinstance(answer, Coroutine):
            # A task that is cancelled before its first step never gets to await the handler.
            task.add_done_callback(lambda _: answer.close())

    async def _finish(
        self,
        answer: Awaitable[Resolution[Message]],
        route: Route,
        context: RequestContext[NodePlane],
        request: Message,
        correlation_id: int,
    ) -> None:
        try:
            response = await answer
        except Exception as error:  # noqa: BLE001 - the dispatcher makes an answer of it
            response = self.dispatcher.settled(route, context, request, error)
        self._answer(response, route, context, correlation_id)

    def _answer(
        self, response: Resolution[Message], route: Route, context: RequestContext[NodePlane], correlation_id: int
    ) -> None:
        self._pending = None
        self.busy = False
        if response is None:
            self._answered(None)
            return
        try:
            if context.is_large:
                self._answer_in_slices(response, route, context, correlation_id)
                return
            finished = response.finish() if isinstance(response, Unfinished) else response
            self.peer.send(route.frame(finished, context.version, correlation_id))
        except Exception as error:  # noqa: BLE001 - as in on_frame: the request that woke this one must not fail
            self._failed(error)
        else:
            self._answered(context)

    def _answer_in_slices(
        self,
        response: Message | Unfinished[Message],
        route: Route,
        context: RequestContext[NodePlane],
        correlation_id: int,
    ) -> None:
        def frame(_job: Job[Pieces]) -> Pieces:
            finished = response.finish() if isinstance(response, Unfinished) else response
            return route.frame(finished, context.version, correlation_id)

        def answered(pieces: Pieces) -> None:
            self._pending = None
            self.busy = False
            self.peer.send(pieces)
            self._answered(context)

        self.dispatcher.in_slices(self, frame, answered)

    def _answered(self, context: RequestContext[NodePlane] | None) -> None:
        """The request is done, without an answer if there is no context: the peer's next request may come."""
        if context is not None and context.broker.metrics is not None:
            context.broker.metrics.answered(context)
        if self.throttle_ms:
            self.mute(self.throttle_ms)
        else:
            self.peer.resume()

    def mute(self, delay_ms: float) -> None:
        """Read nothing from the peer for a while."""
        self.throttle_ms = 0
        self.busy = True
        self._pending = asyncio.get_running_loop().call_later(delay_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._pending = None
        self.busy = False
        self.peer.resume()

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call it too, once, when the socket is gone."""
        before = self.when_closed

        def both() -> None:
            if before is not None:
                before()
            callback()

        self.when_closed = both

    def on_closed(self) -> None:
        """The socket is gone: whatever was waiting for this peer is dropped, also what begins to wait later."""
        self.closed = True
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        if self.when_closed is not None:
            self.when_closed()
            self.when_closed = None
