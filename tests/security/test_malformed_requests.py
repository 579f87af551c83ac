"""Requests that two programs may read differently, and malformed requests at every moment: one answer, few lines of log."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.env import logging as ottla_logging
from ottla.env.logging import BURST, configure
from ottla.security.web import WebAccess
from ottla.security.web_connections import bounded_protocol
from ottla.security.web_requests import BYTES_A_CHUNK, FREE_CHUNKS
from tests.security.served import served

POST = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the number of bytes; `/early` answers first, `/streaming` between its parts."""
    head = {"type": "http.response.start", "status": 200, "headers": []}
    early = scope["path"] in ("/early", "/streaming")
    if early:
        await send(head)
        await send({"type": "http.response.body", "body": b"early", "more_body": scope["path"] == "/streaming"})
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    if not early:
        await send(head)
    if scope["path"] != "/early":
        await send({"type": "http.response.body", "body": f"{scope['path']} {size}".encode()})


@pytest.fixture
def port() -> Iterator[int]:
    app = WebAccess().protect(echo, role_for=lambda _method, _path: "read")
    with served(app, http=bounded_protocol(), ws="none") as found:
        yield found


@contextmanager
def failures() -> Iterator[list[logging.LogRecord]]:
    """What uvicorn and asyncio log meanwhile."""
    found: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler = Kept()
    loggers = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield found
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def everything(peer: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            part = peer.recv(65536)
        except ConnectionError:
            return found
        if not part:
            return found
        found += part


def talk(port: int, *parts: bytes) -> bytes:
    """All that the server answers to the parts, each sent after an answer to the part before has come."""
    with socket.create_connection(("127.0.0.1", port), 60) as peer:
        peer.sendall(parts[0])
        found = b""
        for part in parts[1:]:
            found += peer.recv(65536)
            peer.sendall(part)
        return found + everything(peer)


def statuses(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d+)", answer)]


@pytest.mark.parametrize(
    "request_bytes",
    [
        POST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        POST.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        POST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        POST + b"Transfer-Encoding: identity\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        POST + CHUNKED + b"\r\n2\n{}\n0\n\n",
    ],
)
def test_a_body_with_two_lengths_is_refused_with_what_follows(port: int, request_bytes: bytes) -> None:
    answer = talk(port, request_bytes + NEXT)
    assert statuses(answer) == [400]
    assert b"/next" not in answer


@pytest.mark.parametrize("target", [b"*", b"http://localhost/x", b"x", b"[x"])
def test_a_target_is_a_path(port: int, target: bytes) -> None:
    assert statuses(talk(port, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n" + NEXT)) == [400]


@pytest.mark.parametrize("path", [b"/x", b"/early", b"/streaming"])
@pytest.mark.parametrize("login", [False, True])
def test_a_body_that_becomes_malformed_costs_its_connection_only(path: bytes, login: bool) -> None:
    access = WebAccess(bearer=lambda _token: None) if login else WebAccess()
    app = access.protect(echo, role_for=lambda _method, _path: "read")
    begun = POST.replace(b"/x", path) + b"Expect: 100-continue\r\n" + CHUNKED + b"\r\n2\r\n{}\r\n"
    with served(app, http=bounded_protocol(), ws="none") as port, failures() as logged:
        talk(port, begun, b"zz\r\n\r\n")
        talk(port, begun + b"zz\r\n\r\n")
        assert statuses(talk(port, NEXT)) == [401 if login else 200]
    assert [record.getMessage() for record in logged] == []


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
def test_an_upgrade_is_ignored_without_a_word(port: int, upgrade: bytes) -> None:
    request = b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: " + upgrade + b"\r\n\r\n"
    with failures() as logged:
        assert statuses(talk(port, request + NEXT))[0] == 200
    assert logged == []


def test_malformed_requests_are_logged_within_the_limit_of_lines(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ottla_logging, "PER_SECOND", 0.0)
    stream = io.StringIO()
    configure(stream=stream)
    try:
        with failures() as logged:
            for _ in range(BURST + 50):
                assert statuses(talk(port, b"GET /x\r\n\r\n")) == [400]
    finally:
        configure()
    assert logged == []
    assert stream.getvalue().count("request.malformed peer=127.0.0.1") == BURST


def test_tiny_chunks_are_refused_before_they_cost_time(port: int) -> None:
    head = POST + b"Connection: close\r\n" + CHUNKED + b"\r\n"
    few = head + b"1\r\nx\r\n" * FREE_CHUNKS + b"0\r\n\r\n"
    assert b"/x %d" % FREE_CHUNKS in talk(port, few)
    many = head + b"1\r\nx\r\n" * (FREE_CHUNKS + 1) + b"0\r\n\r\n"
    assert statuses(talk(port, many)) == [400]
    large = head + (b"%x\r\n" % BYTES_A_CHUNK + b"x" * BYTES_A_CHUNK + b"\r\n") * (3 * FREE_CHUNKS) + b"0\r\n\r\n"
    assert b"/x %d" % (3 * FREE_CHUNKS * BYTES_A_CHUNK) in talk(port, large)


def test_the_same_on_asyncios_own_loop() -> None:
    app = WebAccess().protect(echo, role_for=lambda _method, _path: "read")
    with served(app, asyncio.new_event_loop, http=bounded_protocol()) as port, failures() as logged:
        assert statuses(talk(port, POST + CHUNKED + b"\r\nzz\r\n")) == [400]
    assert logged == []
