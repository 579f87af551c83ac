"""A small HTTP/1.1 server for a node's own facts: GET, a fixed set of paths, one answer a connection, nothing else.

A framework would cost a node more memory than the rest of it. Everything is bounded: the request's size and time, the
number of connections, and only GET and HEAD are known.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from ottla.env.logging import get_logger

log = get_logger(__name__)

_MAX_REQUEST = 8 * 1024
_REQUEST_SECONDS = 10.0
_MAX_CONNECTIONS = 64
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpAnswer(NamedTuple):
    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


Answers = Mapping[str, Callable[[], HttpAnswer | Awaitable[HttpAnswer]]]


class HttpServer:
    def __init__(self, sock: socket.socket, answers: Answers) -> None:
        self._socket = sock
        self._answers = answers
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=_MAX_REQUEST)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= _MAX_CONNECTIONS:
            writer.close()
            return
        self._open += 1
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                answer, is_head = await self._answer(head)
                writer.write(_frame(answer, is_head=is_head))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # a peer that does not ask properly gets nothing
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> tuple[HttpAnswer, bool]:
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return HttpAnswer("not HTTP\n", status=400), False
        method, path = parts[0], parts[1].split(b"?", 1)[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return HttpAnswer("only GET is known here\n", status=405), False
        found = self._answers.get(path)
        if found is None:
            return HttpAnswer(f"there are only {', '.join(self._answers)}\n", status=404), method == b"HEAD"
        answer = found()
        return answer if isinstance(answer, HttpAnswer) else await answer, method == b"HEAD"


def _frame(answer: HttpAnswer, *, is_head: bool) -> bytes:
    body = answer.body.encode()
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if is_head else body)
