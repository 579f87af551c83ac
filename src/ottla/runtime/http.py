"""A small HTTP/1.1 server for a node's metrics and state: GET, a fixed set of paths, one answer per connection.

A framework would need more memory than the rest of a node. Everything is bounded: the size and time of a request, and
the number of connections. Only GET and HEAD are allowed. At the limit of connections, the server closes the connection
that has waited longest for its peer, so that idle peers never block `/healthz`. A connection waits for a handshake, a
request, a login, or for the peer to read its answer.

TLS starts here, after a connection was counted, so a peer without a handshake counts as waiting. A connection is
counted until its socket is closed, which with TLS needs an answer of the peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from ottla.env.logging import get_logger
from ottla.runtime.descriptors import SocketBudget
from ottla.security.web import TooManyFailures, WebAccess, WebAccessError
from ottla.security.web_headers import HEAD_LINES
from ottla.security.web_hosts import WebHosts

log = get_logger(__name__)

MAX_CONNECTIONS = 64
REQUEST_S = 10.0
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a login: health checks have none, and these paths return only yes or no."""
_MAX_REQUEST = 8 * 1024
_ACCEPT_PAUSE_S = 0.2
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token (RFC 9110, 5.6.2)."""
_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    421: "Misdirected Request", 429: "Too Many Requests", 503: "Service Unavailable",
}  # fmt: skip


class HttpAnswer(NamedTuple):
    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    header: str = ""
    """One more line of the head."""


Answers = Mapping[str, Callable[[], HttpAnswer | Awaitable[HttpAnswer]]]


class _Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]


class HttpServer:
    def __init__(
        self,
        sock: socket.socket,
        answers: Answers,
        *,
        access: WebAccess | None = None,
        hosts: WebHosts | None = None,
        max_connections: int = MAX_CONNECTIONS,
        request_s: float = REQUEST_S,
        budget: SocketBudget | None = None,
    ) -> None:
        self._socket = sock
        self._budget = budget
        self._answers = answers
        self._access = WebAccess() if access is None else access
        self._hosts = hosts
        self._tls = self._access.ssl_context()
        self._max_connections = max_connections
        self._request_s = request_s
        self._accepting: asyncio.Task[None] | None = None
        self._open: dict[socket.socket, asyncio.Task[None]] = {}
        self._waiting: dict[socket.socket, None] = {}
        """Connections that wait for their peer, the oldest first."""

    async def start(self) -> None:
        self._accepting = asyncio.ensure_future(self._accept())
        self._accepting.add_done_callback(lambda _: self._socket.close())

    def stop(self) -> None:
        for task in (self._accepting, *self._open.values()):
            if task is not None:
                task.cancel()
        self._accepting = None

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._socket)
            except OSError as error:  # for example, no descriptor is left
                log.warning("http.not_accepted", reason=error.strerror or str(error))
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            if len(self._open) >= self._max_connections and not self._make_room():
                sock.close()
                continue
            if self._budget is not None and not self._budget.take(privileged=True):
                sock.close()
                continue
            self._waiting[sock] = None
            self._open[sock] = loop.create_task(self._serve(sock, str(address[0])))

    def _make_room(self) -> bool:
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        task = self._forget(oldest)
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)
        if task is not None:
            task.cancel()
        return True

    def _forget(self, sock: socket.socket) -> asyncio.Task[None] | None:
        self._waiting.pop(sock, None)
        return self._open.pop(sock, None)

    async def _serve(self, sock: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MAX_REQUEST, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._request_s):
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=self._tls)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                await self._converse(sock, reader, writer, address)
                writer.close()
                await writer.wait_closed()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass  # a malformed request gets no answer
        finally:
            if writer is not None:
                writer.transport.abort()
            self._forget(sock)
            if self._budget is not None:
                self._budget.give_back(privileged=True)

    async def _converse(
        self, sock: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        answer, is_head = await self._answer(head, address, lambda: self._waiting.pop(sock, None))
        if sock in self._open:
            self._waiting[sock] = None
            writer.write(_frame(answer, is_head=is_head))
            await writer.drain()

    async def _answer(self, head: bytes, address: str, let_in: Callable[[], object]) -> tuple[HttpAnswer, bool]:
        """`let_in` is called after the peer's login: only then does its connection keep its place."""
        request = _parse(head)
        if isinstance(request, HttpAnswer):
            return request, False
        is_head = request.method == "HEAD"
        if request.method not in ("GET", "HEAD"):
            return HttpAnswer("only GET is known here\n", status=405), False
        refused = await self._refusal(request, address)
        if refused is not None:
            return refused, is_head
        let_in()
        handler = self._answers.get(request.path)
        if handler is None:
            return HttpAnswer(f"there are only {', '.join(self._answers)}\n", status=404), is_head
        answer = handler()
        return answer if isinstance(answer, HttpAnswer) else await answer, is_head

    async def _refusal(self, request: _Request, address: str) -> HttpAnswer | None:
        if request.path in OPEN_PATHS:
            return None
        foreign = self._hosts.refusal(request.method, request.headers) if self._hosts is not None else None
        if foreign is not None:
            return HttpAnswer(f"{foreign.message}\n", status=foreign.status)
        try:
            user = await self._access.user(request.headers.get("authorization"), address)
        except TooManyFailures as error:
            return HttpAnswer(f"{error}\n", status=429, header=f"Retry-After: {error.retry_after_s}\r\n")
        except WebAccessError as error:
            return HttpAnswer(f"{error}\n", status=503)
        if user is None:
            return HttpAnswer("Unauthorized\n", status=401, header='WWW-Authenticate: Basic realm="ottla"\r\n')
        return None


def _parse(head: bytes) -> _Request | HttpAnswer:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.0", "HTTP/1.1"):
        return HttpAnswer("not HTTP\n", status=400)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _HEADER_NAME.fullmatch(name)):  # `Host : name` would pass as a request without a Host
            return HttpAnswer("a header line is malformed\n", status=400)
        if name.lower() == "host" and "host" in headers:
            return HttpAnswer("two Host headers\n", status=400)
        headers[name.lower()] = value.strip()
    return _Request(parts[0], parts[1].partition("?")[0], headers)


def _frame(answer: HttpAnswer, *, is_head: bool) -> bytes:
    body = answer.body.encode()
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n{answer.header}"
        f"Content-Length: {len(body)}\r\n{HEAD_LINES}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if is_head else body)
