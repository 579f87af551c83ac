"""An address of signing keys that hangs or drips: it holds one thread for a while, and no login by password."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk

from ottla.security import jwks
from ottla.security.jwks import FIRST_KEYS_WAIT_S, JwksError, UrlKeys, check_allowed
from ottla.security.web import LOGIN_THREADS, WebAccess, WebUser, WebUsers
from tests.security.secured import Certificates

DRIPS = 400


@contextmanager
def dripping_server(pause_s: float, start: bytes) -> Iterator[tuple[str, list[int]]]:
    """Sends `start`, then a byte at a time; the address, and the number of bytes sent so far."""
    server = socket.create_server(("127.0.0.1", 0))
    sent = [0]
    ended = threading.Event()

    def serve() -> None:
        try:
            connection, _ = server.accept()
            with connection:
                connection.sendall(start)
                for _ in range(DRIPS):
                    connection.sendall(b"x")
                    sent[0] += 1
                    if ended.wait(pause_s):
                        return
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/keys", sent
    finally:
        ended.set()
        server.close()
        thread.join()


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_body_or_a_header_in_single_bytes_has_one_limit(start: bytes) -> None:
    """Each byte came within the timeout, so the request went on as long as the server liked."""
    with dripping_server(0.05, start) as (url, sent):
        with pytest.raises(JwksError):
            UrlKeys(url, connect_timeout_s=0.5).refresh()
        assert sent[0] < DRIPS, "the request waited for all that the server had"


def test_logins_do_not_wait_long_for_the_first_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread requests the keys. A login that comes later than FIRST_KEYS_WAIT_S after that is refused at once."""
    requested, answer = threading.Event(), threading.Event()

    def hang(_url: str, _timeout: float) -> bytes:
        requested.set()
        assert answer.wait(60)
        raise JwksError("no answer")

    monkeypatch.setattr(jwks, "_get", hang)
    now = [100.0]
    keys = UrlKeys("http://127.0.0.1:1/keys", monotonic=lambda: now[0])

    def request() -> None:
        with pytest.raises(JwksError):
            keys.refresh_if_due()

    first = threading.Thread(target=request)
    first.start()
    assert requested.wait(60)
    now[0] += FIRST_KEYS_WAIT_S
    for _ in range(50):
        keys.refresh_if_due()  # without the limit, each call waits for the answer
    assert keys.current() is None
    answer.set()
    first.join()


def test_passwords_are_checked_while_tokens_hang(tmp_path: Path) -> None:
    """All threads of tokens wait for signing keys; before, passwords had the same threads."""
    users = tmp_path / "users"
    users.write_text("carol:secret\n")
    answer = threading.Event()

    def bearer(_token: str) -> WebUser | None:
        assert answer.wait(60)
        return None

    async def main() -> Any:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(LOGIN_THREADS))
        access = WebAccess(users=WebUsers(users), bearer=bearer)
        tokens = [asyncio.ensure_future(access.user(f"Bearer {n}", f"192.0.2.{n}")) for n in range(2 * LOGIN_THREADS)]
        await asyncio.sleep(0)
        login = "Basic " + base64.b64encode(b"carol:secret").decode()
        try:
            return await asyncio.wait_for(access.user(login, "192.0.2.250"), 30)
        finally:
            answer.set()
            await asyncio.gather(*tokens)

    assert asyncio.run(main()).name == "carol"


def test_an_address_with_a_login_is_refused_without_the_login() -> None:
    url = "https://name:S3cret@host/keys"
    with pytest.raises(JwksError) as refused:
        check_allowed(url, [url])
    assert "S3cret" not in str(refused.value)


def test_keys_over_https_are_fetched_and_the_name_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = Certificates(tmp_path)
    key = jwk.ECKey.generate_key("P-256", {"kid": "k1"}, private=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue("server", None, "localhost"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"keys": [key.as_dict(private=False)]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority_file))
    try:
        keys = UrlKeys(f"https://localhost:{server.server_port}/keys")
        keys.refresh()
        assert keys.current() is not None
        with pytest.raises(JwksError, match="certificate"):
            UrlKeys(f"https://127.0.0.1:{server.server_port}/keys").refresh()
    finally:
        server.shutdown()
        server.server_close()
