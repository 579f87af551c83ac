"""A connection to one other node: typed requests out, typed responses back, matched by correlation id.

The client connects at the first request and again after a loss, with a growing pause between attempts. Versions are
agreed by ApiVersions on every connection. At most `max_in_flight` requests wait for an answer; further requests queue.
A request without an answer in time closes the connection, because later answers cannot be trusted to come either. A
request that times out in the queue leaves the connection open. Every failure raises NodeUnavailable: the caller
decides whether to retry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla import __version__
from ottla.model.errors import ErrorCode
from ottla.protocol.api import encode_request, response_class, response_header_version
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.framing import FrameDecoder
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.api_versions_response import ApiVersionsResponse
from ottla.protocol.primitives import DecodeError, Message, skip_tags
from ottla.runtime.shared_futures import outcome_of
from ottla.security.sasl import SaslFailure

if TYPE_CHECKING:
    from ottla.security.outgoing import PeerSecurity

_MAX_CORRELATION_ID = 0x7FFFFFFF


class NodeUnavailable(Exception):
    """The request got no answer; the other node may or may not have seen it."""


class UnsupportedByNode(NodeUnavailable):
    """The other node does not have this API in a version that we support."""


class _Waiting(NamedTuple):
    answer: asyncio.Future[Any]
    api_key: int
    version: int


class NodeClient:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_ms: float = 30_000,
        connect_timeout_ms: float = 10_000,
        backoff_ms: float = 50,
        backoff_max_ms: float = 1_000,
        max_in_flight: int = 5,
        on_lost: Callable[[], None] | None = None,
        security: PeerSecurity | None = None,
    ) -> None:
        """`on_lost` is called when an open connection is lost."""
        self.host = host
        self.port = port
        self._client_id = client_id
        self._request_timeout = request_timeout_ms / 1000
        self._connect_timeout = connect_timeout_ms / 1000
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._turns = asyncio.Semaphore(max_in_flight)
        self._on_lost = on_lost
        self._security = security
        self._failures = 0
        self._not_before = 0.0
        self._wire: _Wire | None = None
        self._connecting: asyncio.Task[_Wire] | None = None
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._wire is not None

    async def send(self, request: Message, *, version: int | None = None, timeout_ms: float | None = None) -> Any:
        """The response. Without `version`, the highest that both sides have."""
        seconds = self._request_timeout if timeout_ms is None else timeout_ms / 1000
        name = type(request).__name__
        used: _Wire | None = None
        try:
            async with asyncio.timeout(seconds), self._turns:
                wire = used = self._wire or await self._connect()
                return await wire.send(request, wire.version(request) if version is None else version)
        except TimeoutError as error:
            if used is not None:
                used.drop(f"{name} was not answered in {seconds:.1f} s")
            raise NodeUnavailable(f"{self.host}:{self.port}: {name} was not answered in {seconds:.1f} s") from error

    def close(self) -> None:
        """Close the connection. Waiting and later requests get NodeUnavailable."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._drop("the client is closed")

    async def _connect(self) -> _Wire:
        """All waiting callers share one attempt; a caller that gives up does not end it for the others."""
        if self._closed:
            raise NodeUnavailable("the client is closed")
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._open())
            self._connecting.add_done_callback(self._on_attempted)
        try:
            return await outcome_of(self._connecting)
        except asyncio.CancelledError:
            if self._closed:
                raise NodeUnavailable("the client is closed") from None
            raise

    def _on_attempted(self, task: asyncio.Task[_Wire]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # mark as retrieved: waiting callers get it, but there may be none

    async def _open(self) -> _Wire:
        loop = asyncio.get_running_loop()
        pause = self._not_before - loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        wire = _Wire(self._client_id, self._on_wire_lost)
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._secure_connection(wire)
            wire.check_open()
        except asyncio.CancelledError:
            wire.drop("the client is closed")  # else the loop keeps the connection until the other node ends it
            raise
        except (OSError, TimeoutError, NodeUnavailable, SaslFailure, ValueError) as error:
            wire.drop("no connection")
            self._failed()
            reason = str(error) or f"no connection in {self._connect_timeout:.1f} s"
            raise NodeUnavailable(f"{self.host}:{self.port}: {reason}") from error
        self._failures = 0
        self._wire = wire
        return wire

    async def _secure_connection(self, wire: _Wire) -> None:
        loop, security = asyncio.get_running_loop(), self._security
        context = security.context() if security is not None else None
        name = self.host if context is not None else None
        await loop.create_connection(lambda: wire, self.host, self.port, ssl=context, server_hostname=name)
        await wire.negotiate()
        if security is not None:
            await security.login(wire.send)

    def _failed(self) -> None:
        pause_ms = min(self._backoff_ms * 2**self._failures, self._backoff_max_ms)
        self._failures = min(self._failures + 1, 16)
        self._not_before = asyncio.get_running_loop().time() + pause_ms / 1000

    def _drop(self, reason: str) -> None:
        if self._wire is not None:
            self._wire.drop(reason)

    def _on_wire_lost(self, wire: _Wire) -> None:
        if self._wire is wire:
            self._wire = None
            if self._on_lost is not None and not self._closed:
                self._on_lost()


class _Wire(asyncio.Protocol):
    """One TCP connection that lives until it fails."""

    def __init__(self, client_id: str, on_lost: Callable[[_Wire], None]) -> None:
        self._client_id = client_id
        self._on_lost = on_lost
        self._frames = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        self._lost: str | None = None

    async def negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        response: ApiVersionsResponse = await self.send(request, ApiVersionsRequest.MAX_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self.send(request, 0)
        if response.error_code:
            raise NodeUnavailable(f"ApiVersions was refused: {ErrorCode(response.error_code).name}")
        self._ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def check_open(self) -> None:
        """Raises NodeUnavailable if the connection was lost right behind the last answer of its handshake: the loop may
        handle both before the coroutine that waits for the answer. Without this check the client would keep a dead
        connection for ever.
        """
        if self._lost is not None:
            raise NodeUnavailable(self._lost)

    def version(self, request: Message) -> int:
        low, high = self._ranges.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION)
        if version < max(low, request.MIN_VERSION):
            raise UnsupportedByNode(
                f"{type(request).__name__}: the node has versions {low}-{high}, "
                f"we have {request.MIN_VERSION}-{request.MAX_VERSION}"
            )
        return version

    async def send(self, request: Message, version: int) -> Any:
        self.check_open()
        if self._transport is None:
            raise NodeUnavailable("not connected")
        self._correlation_id = self._correlation_id % _MAX_CORRELATION_ID + 1
        correlation_id = self._correlation_id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pieces = encode_request(request, version, correlation_id, self._client_id)
        self._waiting[correlation_id] = _Waiting(answer, request.API_KEY, version)
        self._transport.write(b"".join(pieces))
        return await answer

    def drop(self, reason: str) -> None:
        first, self._lost = self._lost is None, self._lost or reason
        if self._transport is not None:
            self._transport.abort()
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(NodeUnavailable(self._lost))
        self._waiting.clear()
        if first:
            self._on_lost(self)

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport has the methods, but not the class

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.feed(data)
            for frame in self._frames.frames():
                self._on_frame(frame)
        except DecodeError as error:
            self.drop(f"a response cannot be read: {error}")

    def _on_frame(self, frame: bytes) -> None:
        waiting = self._waiting.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if waiting is None:
            raise DecodeError("a response to a request that was not sent")
        pos = 4
        version = waiting.version
        if (
            waiting.api_key == ApiKey.API_VERSIONS
            and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
        ):
            version = 0  # this error always comes in version 0 (KIP-511)
        elif response_header_version(waiting.api_key, version):
            pos = skip_tags(frame, pos)
        response, _ = response_class(waiting.api_key).decode(frame, pos, version)
        if not waiting.answer.done():
            waiting.answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.drop(f"the connection was lost{f': {exc}' if exc else ''}")


async def reachable(host: str, port: int, timeout_ms: float) -> bool:
    """Whether something accepts connections there. Only a refusal is certain; silence, an unknown name, a host that is no
    name (ValueError) or a network that is away count as reachable.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    except (OSError, ValueError):
        return True
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
