"""A node's HTTP listener against idle peers, strangers and foreign names."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.runtime.http import HttpAnswer, HttpServer
from ottla.security.web import WebAccess, WebUser, hash_password
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.security.secured import Certificates
from tests.security.test_web_limits import is_closed
from tests.support.ports import free_port


def ask(address: str, path: str, login: str | None = None, host: str | None = None, tls: ssl.SSLContext | None = None) -> tuple[int, str]:  # fmt: skip
    name, _, port = address.rpartition(":")
    connection = (
        http.client.HTTPSConnection(name, int(port), timeout=60, context=tls)
        if tls is not None
        else http.client.HTTPConnection(name, int(port), timeout=60)
    )
    headers = {} if host is None else {"Host": host}
    if login is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize("head", [b"", b"GET /healthz HTT"])
def test_idle_connections_do_not_hide_the_health(head: bytes) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address}):
        host, _, port = address.rpartition(":")
        idle = [socket.create_connection((host, int(port)), 60) for _ in range(70)]
        for peer in idle[-10:]:
            peer.sendall(head)
        assert [ask(address, "/healthz")[0] for _ in range(3)] == [200] * 3
        assert is_closed(idle[0])
        for peer in idle:
            peer.close()


def test_a_peer_that_reads_nothing_and_one_that_asks_nothing_are_let_go() -> None:
    address = f"127.0.0.1:{free_port()}"
    own = {"ottla.http.listener": address, "ottla.http.request.timeout.ms": "300"}
    with Broker(properties=own):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 60) as silent:
            assert is_closed(silent)


@pytest.mark.timeout(180)
def test_users_and_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    (tmp_path / "users").write_text(f"prometheus:read:{hash_password('scrape')}\n")
    address = f"127.0.0.1:{free_port()}"
    own = {
        "ottla.http.listener": address,
        "ottla.http.users.file": str(tmp_path / "users"),
        "ottla.http.tls.certificate": str(certificates.issue("node")),
    }
    context = ssl.create_default_context(cafile=str(certificates.authority_file))
    with Broker(properties=own):
        for path in ("/metrics", "/lineage", "/nowhere"):
            assert ask(address, path, tls=context)[0] == 401
            assert ask(address, path, "prometheus:wrong", tls=context)[0] == 401
        for path in ("/healthz", "/readyz"):
            assert ask(address, path, tls=context)[0] == 200
        assert "kafka_server" in ask(address, "/metrics", "prometheus:scrape", tls=context)[1]
        assert "produce" in json.loads(ask(address, "/lineage", "prometheus:scrape", tls=context)[1])
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(address, "/healthz")  # no TLS, no answer
        peers = [socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 60) for _ in range(70)]
        assert ask(address, "/healthz", tls=context)[0] == 200, "peers that do not shake hands make room"
        for peer in peers:
            peer.close()
        held = [_answered_and_not_closed(address, context) for _ in range(70)]
        # Counted until it is closed, it makes room. The server's own end of TLS may be there to read before.
        with contextlib.suppress(ConnectionError):
            while held[0].recv(65_536):
                pass
        for peer in held:
            peer.close()
        port = int(address.rpartition(":")[2])
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60), server_hostname="localhost") as odd:
            odd.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic \xe9\r\n\r\n")
            assert odd.recv(100).startswith(b"HTTP/1.1 401"), "letters that are not ASCII are no login"


def _answered_and_not_closed(address: str, context: ssl.SSLContext) -> socket.socket:
    """The peer has its answer, and never ends its side of the TLS connection. Below TLS, which is the peer's own."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    peer = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 60)

    def exchanged(step: Callable[[], Any]) -> Any:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                peer.sendall(outgoing.read())
                incoming.write(peer.recv(65_536))
            else:
                peer.sendall(outgoing.read())
                return result

    exchanged(tls.do_handshake)
    exchanged(lambda: tls.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    assert exchanged(lambda: tls.read(100)).startswith(b"HTTP/1.1 200")
    return peer


def test_a_login_that_is_being_checked_keeps_no_place() -> None:
    asyncio.run(_logins_being_checked())


async def _logins_being_checked() -> None:
    asked = asyncio.Event()

    class Slow(WebAccess):
        async def user(self, authorization: str | None, address: str = "") -> WebUser | None:
            asked.set()
            await asyncio.Event().wait()
            return None

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server = HttpServer(
        listening, {"/healthz": lambda: HttpAnswer("ok\n"), "/metrics": lambda: HttpAnswer("")}, access=Slow(),
        max_connections=2,
    )  # fmt: skip
    await server.start()
    where = listening.getsockname()
    try:
        waiting = []
        for _ in range(5):
            reader, writer = await asyncio.open_connection(*where)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            asked.clear()
            await asyncio.wait_for(asked.wait(), 60)
            waiting.append((reader, writer))
        assert await asyncio.wait_for(waiting[0][0].read(), 60) == b""
        reader, writer = await asyncio.open_connection(*where)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 200")
        assert len(server._open) <= 2
        for _, each in [*waiting, (reader, writer)]:
            each.close()
    finally:
        server.stop()


def test_lineage_names_nobody_to_a_network_without_logins() -> None:
    port = free_port()
    with Broker(properties={"ottla.http.listener": f"0.0.0.0:{port}", "ottla.allow.open": "true"}):
        status, text = ask(f"127.0.0.1:{port}", "/lineage")
        assert status == 403
        assert "ottla.http.users.file" in text
        assert ask(f"127.0.0.1:{port}", "/metrics")[0] == 200


def test_foreign_names_are_refused() -> None:
    address = f"127.0.0.1:{free_port()}"
    own = {"ottla.http.listener": address, "ottla.http.allowed.hosts": "metrics.example,.svc.local"}
    with Broker(properties=own):
        for host in ("localhost", "metrics.example", "node.svc.local:9094", socket.gethostname()):
            assert ask(address, "/lineage", host=host)[0] == 200, host
        status, text = ask(address, "/lineage", host="rebound.example")
        assert status == 421
        assert "ottla.http.allowed.hosts" in text
        assert ask(address, "/healthz", host="rebound.example")[0] == 200


@pytest.mark.parametrize("line", [b"Host : rebound.example", b" Host: rebound.example", b"Host", b": x", b"H\xe9: x"])
def test_malformed_header_lines_are_refused(line: bytes) -> None:
    address = ("127.0.0.1", free_port())
    with Broker(properties={"ottla.http.listener": f"{address[0]}:{address[1]}"}):
        for version, status in ((b"HTTP/1.1", b" 400 "), (b"HTTP/1.1x", b" 400 ")):
            with socket.create_connection(address, 60) as peer:
                peer.sendall(b"GET /metrics " + version + b"\r\n" + line + b"\r\n\r\n")
                assert status in peer.recv(200)


def test_a_users_file_that_is_none_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("carol:viewer\n")
    own = {"ottla.http.listener": f"127.0.0.1:{free_port()}", "ottla.http.users.file": str(tmp_path / "users")}
    with pytest.raises(StartupError, match="line 1"), Broker(properties=own):
        pass
