"""Every answer of every HTTP server has the security headers: pages, refusals, malformed requests and crashes."""

from __future__ import annotations

import ast
import asyncio
import socket
from typing import Any

import pytest

from ottla.runtime.http import HttpAnswer, HttpServer
from ottla.security.web import WebAccess
from ottla.security.web_headers import SECURITY_HEADERS
from ottla.security.web_hosts import WebHosts
from tests.security.served import served
from tests.test_tidy import ROOT, source_files

OWN_POLICY = "default-src 'none'; script-src 'self'"


async def app(scope: Any, _receive: Any, send: Any) -> None:
    if scope["path"] == "/crash":
        raise RuntimeError("a bug")
    own = [(b"content-security-policy", OWN_POLICY.encode())] if scope["path"] == "/own" else []
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html"), *own]})
    await send({"type": "http.response.body", "body": b"<script>alert(1)</script>"})


def ask(port: int, request: bytes) -> tuple[int, list[tuple[str, str]]]:
    with socket.create_connection(("127.0.0.1", port), 60) as peer:
        peer.sendall(request)
        answer = b""
        while chunk := peer.recv(65536):
            answer += chunk
    first, *lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    headers = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]
    return int(first.split()[1]), headers


def get(path: str, host: str = "localhost") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/x"), 200),
        (get("/x", host="evil.example"), 421),
        (get("/crash"), 500),
        (b"GET http://x/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"no HTTP at all\r\n\r\n", 400),
    ],
)
def test_every_answer_has_each_header_once(request_bytes: bytes, status: int) -> None:
    access = WebAccess()
    guarded = access.protect(app, role_for=lambda _method, _path: "read", hosts=WebHosts(()))
    with served(guarded, **access.uvicorn_options()) as port:
        answered, headers = ask(port, request_bytes)
    assert answered == status
    for name, value in SECURITY_HEADERS.items():
        assert [v for n, v in headers if n == name.lower()] == [value], name


def test_an_application_keeps_its_own_policy() -> None:
    with served(app, **WebAccess().uvicorn_options()) as port:
        _, headers = ask(port, get("/own"))
    assert [value for name, value in headers if name == "content-security-policy"] == [OWN_POLICY]


@pytest.mark.parametrize(("request_bytes", "status"), [(get("/x"), 200), (get("/y"), 404), (b"POST\r\n\r\n", 400)])
def test_a_nodes_own_server(request_bytes: bytes, status: int) -> None:
    async def run() -> tuple[int, list[tuple[str, str]]]:
        sock = socket.create_server(("127.0.0.1", 0))
        sock.setblocking(False)
        server = HttpServer(sock, {"/x": lambda: HttpAnswer("<script>alert(1)</script>")})
        await server.start()
        try:
            return await asyncio.to_thread(ask, sock.getsockname()[1], request_bytes)
        finally:
            server.stop()

    answered, headers = asyncio.run(run())
    assert answered == status
    for name, value in SECURITY_HEADERS.items():
        assert [v for n, v in headers if n == name.lower()] == [value], name


def test_every_uvicorn_has_these_connections() -> None:
    """`WebAccess.uvicorn_options` has the class of connections that adds the headers."""
    bare = []
    for path in source_files():
        if ROOT / "src" not in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="uvicorn"), attr="run" | "Config"), keywords=keywords
                ) if not any(keyword.arg is None and ("options" in ast.unparse(keyword.value)) for keyword in keywords):
                    bare.append(f"{path.relative_to(ROOT)}:{node.lineno}")
                case _:
                    pass
    assert bare == []
