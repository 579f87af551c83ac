"""Limits of the HTTP servers: connections that ask for nothing, wrong passwords, garbage tokens, lines of a users file."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvloop
from joserfc import jwk, jwt

from ottla.security import web_users
from ottla.security.failed_logins import LIMIT, TooManyFailures, WebLoginFailures
from ottla.security.jwks import UrlKeys
from ottla.security.web import WebAccess, WebAccessError, WebUser, WebUsers, hash_password, jwt_bearer
from ottla.security.web_connections import bounded_protocol
from tests.security.secured import Certificates
from tests.security.served import served
from tests.security.test_web import application, role_for

# Connections


def ask(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/x")
    status = connection.getresponse().status
    connection.close()
    return status


def is_closed(peer: socket.socket) -> bool:
    peer.settimeout(60)
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("head", [b"", b"GET /x HTT", b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"])
def test_connections_that_wait_for_their_peer_make_room(head: bytes) -> None:
    app = WebAccess().protect(_drained, role_for=role_for)
    with served(app, http=bounded_protocol(max_connections=8)) as port:
        idle = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(8)]
        for peer in idle:
            peer.sendall(head)
        assert [ask(port) for _ in range(3)] == [200] * 3
        assert is_closed(idle[0])
        for peer in idle:
            peer.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("head", [b"", b"\x16\x03\x01\x02"])
def test_peers_that_do_not_shake_hands_make_room(tmp_path: Path, head: bytes, new_loop: Any) -> None:
    certificates = Certificates(tmp_path)
    access = WebAccess(tls_key=certificates.issue("server"))
    trusted = ssl.create_default_context(cafile=str(certificates.authority_file))

    def status(port: int) -> int:
        connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=trusted)
        connection.request("GET", "/x")
        answer = connection.getresponse().status
        connection.close()
        return answer

    app = access.protect(application, role_for=role_for)
    with served(app, new_loop, http=bounded_protocol(8, head_s=60, tls=access.ssl_context())) as port:
        idle = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(20)]
        for peer in idle[12:]:
            peer.sendall(head)
        assert all(is_closed(peer) for peer in idle[:12])
        assert [status(port) for _ in range(3)] == [200] * 3
        for peer in idle:
            peer.close()
    with served(app, new_loop, http=bounded_protocol(8, head_s=2, tls=access.ssl_context())) as port:
        with socket.create_connection(("127.0.0.1", port), 60) as silent:
            assert is_closed(silent), "a handshake has its time"
        assert status(port) == 200


def test_a_head_that_never_ends_is_not_waited_for() -> None:
    with served(WebAccess().protect(application, role_for=role_for), http=bounded_protocol(8, head_s=0.2)) as port:
        silent, slow = (socket.create_connection(("127.0.0.1", port), 60) for _ in range(2))
        slow.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert is_closed(silent)
        assert is_closed(slow)
        assert ask(port) == 200


async def _drained(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await application(scope, receive, send)


# Wrong passwords


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_address_that_fails_too_often_waits() -> None:
    clock = Clock()
    failures = WebLoginFailures(limit=3, window_s=60, monotonic=clock)
    for _ in range(3):
        failures.check("10.0.0.1")
        failures.failed("10.0.0.1")
    with pytest.raises(TooManyFailures) as waits:
        failures.check("10.0.0.1")
    assert 1 <= waits.value.retry_after_s <= 20
    failures.check("10.0.0.2")
    clock.now += waits.value.retry_after_s
    failures.check("10.0.0.1")
    failures.failed("10.0.0.1")
    with pytest.raises(TooManyFailures):
        failures.check("::ffff:10.0.0.1")


def test_a_network_of_ipv6_is_one_address_and_the_table_is_bounded() -> None:
    failures = WebLoginFailures(limit=1, max_addresses=100)
    failures.failed("2001:db8::1")
    with pytest.raises(TooManyFailures):
        failures.check("2001:db8::ffff")
    failures.check("2001:db8:0:1::1")
    for number in range(1000):
        failures.failed(f"10.0.{number >> 8}.{number & 255}")
    assert len(failures) == 100


def test_wrong_passwords_at_once_count_and_a_good_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is counted: a password is hashed so often and no more, however many come at the same time."""
    (tmp_path / "users").write_text(f"ann:read:{hash_password('good')}\n")
    hashed: list[str] = []
    checked = web_users.check_password
    monkeypatch.setattr(web_users, "check_password", lambda *given: (hashed.append("x"), checked(*given))[1])
    access = WebAccess.from_options(users_file=str(tmp_path / "users"))
    access.failures = WebLoginFailures(monotonic=lambda: 0.0)  # no failure fades meanwhile

    def header(password: str) -> str:
        return "Basic " + base64.b64encode(f"ann:{password}".encode()).decode()

    async def attack() -> list[Any]:
        assert await access.user(header("good"), "10.0.0.1") == WebUser("ann", "read")
        hashed.clear()
        tried = [access.user(header(f"bad{number}"), "10.0.0.1") for number in range(80)]
        found = await asyncio.gather(*tried, return_exceptions=True)
        assert await access.user(header("good"), "10.0.0.1") == WebUser("ann", "read")
        assert await access.user(header("good"), "10.0.0.2") == WebUser("ann", "read")
        return found

    found = asyncio.run(attack())
    assert found.count(None) == len(hashed) == LIMIT
    assert sum(isinstance(one, TooManyFailures) for one in found) == 80 - LIMIT


def test_a_peer_does_not_choose_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    (tmp_path / "users").write_text(f"ann:read:{hash_password('good')}\n")
    access = WebAccess.from_options(users_file=str(tmp_path / "users"))
    access.failures = WebLoginFailures(limit=2, monotonic=lambda: 0.0)
    protected = access.protect(application, role_for=role_for)

    def statuses(port: int) -> list[int]:
        found = []
        for number in range(3):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            login = base64.b64encode(b"ann:bad%d" % number).decode()
            connection.request(
                "GET", "/x", headers={"Authorization": f"Basic {login}", "X-Forwarded-For": f"10.0.0.{number}"}
            )
            found.append(connection.getresponse().status)
            connection.close()
        return found

    with served(protected, **access.uvicorn_options()) as port:
        assert statuses(port) == [401, 401, 429]
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")  # a proxy of the operator's, on this machine
    with served(protected, **access.uvicorn_options()) as port:
        assert statuses(port) == [401, 401, 401]


def test_the_answer_says_when_to_come_again(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ann:read:{hash_password('good')}\n")
    access = WebAccess.from_options(users_file=str(tmp_path / "users"))
    access.failures = WebLoginFailures(monotonic=lambda: 0.0)
    for _ in range(LIMIT):
        access.failures.failed("127.0.0.1")
    with served(access.protect(application, role_for=role_for)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/x", headers={"Authorization": "Basic " + base64.b64encode(b"ann:bad").decode()})
        answer = connection.getresponse()
        assert answer.status == 429
        assert int(answer.headers["Retry-After"]) >= 1
        connection.close()
        assert ask(port) == 401  # nothing was shown, nothing is counted


# Garbage tokens


@contextmanager
def keys_at(key: Any) -> Iterator[tuple[str, list[str]]]:
    """(address, requests seen)."""
    seen: list[str] = []
    body = json.dumps({"keys": [key.as_dict(private=False)]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/jwks", seen
    finally:
        server.shutdown()
        server.server_close()


def token(key: Any, kid: str | None = "k1", **claims: Any) -> str:
    header = {"alg": "RS256"} if kid is None else {"alg": "RS256", "kid": kid}
    return jwt.encode(header, {"sub": "tok", "exp": 4_000_000_000, **claims}, key)


def test_garbage_tokens_fetch_no_keys() -> None:
    key = jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
    other = jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
    with keys_at(key) as (address, seen):
        find = jwt_bearer(address)
        assert find(token(key)) == WebUser("tok", "read")
        assert len(seen) == 1
        garbage = ["", "a.b.c", "x" * 5000, token(other), token(key)[:-5], token(key) + "x", token(key, exp=1)]
        garbage += [token(other, kid=f"unknown{number}") for number in range(5)]
        assert [find(one) for one in garbage] == [None] * len(garbage)
        assert len(seen) == 1, "within the pause no token fetches keys"
        assert find(token(key)) == WebUser("tok", "read")


def test_a_new_key_is_fetched_after_the_pause_and_by_one_at_a_time() -> None:
    key = jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
    clock = Clock()
    with keys_at(key) as (address, seen):
        keys = UrlKeys(address, monotonic=clock)
        keys.refresh_if_due()
        for _ in range(50):
            keys.ask_again("another")
            keys.refresh_if_due()
        assert len(seen) == 1
        keys.ask_again("k1")
        clock.now += 100
        keys.refresh_if_due()
        assert len(seen) == 2, "asked for in the pause, fetched after it"
        keys.ask_again("k1")  # a known key: its token is bad, not our keys
        clock.now += 100
        keys.refresh_if_due()
        assert len(seen) == 2
        clock.now += 100_000
        keys.refresh_if_due()
        assert len(seen) == 3, "keys grow old"
        keys.ask_again("another")
        clock.now += 100
        threads = [threading.Thread(target=keys.refresh_if_due) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(seen) == 4


# Lines of the users file


@pytest.mark.parametrize("line", ["carol:viewer", "carol:admin", "carol:read,write", "carol: Operator", "carol:READ"])
def test_a_role_is_not_a_password(tmp_path: Path, line: str) -> None:
    (tmp_path / "users").write_text(f"# people\nann:read:{hash_password('x')}\n{line}\n")
    with pytest.raises(WebAccessError, match="line 3") as refused:
        WebUsers(tmp_path / "users")
    assert "carol" in str(refused.value)
    assert line.partition(":")[2] not in str(refused.value).replace("NAME:ROLE:HASH", "")


def test_a_second_line_for_a_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ann:s3cret-one\nbob:x1\nann:s3cret-two\n")
    with pytest.raises(WebAccessError, match="line 3") as refused:
        WebUsers(tmp_path / "users")
    assert "s3cret" not in str(refused.value)


def test_what_the_version_before_took_and_is_clear_is_taken(tmp_path: Path) -> None:
    """Also a comment behind blanks, which was a user called "# x" before."""
    (tmp_path / "users").write_text(
        f"ann:plain\n\n  # x:y\nbob:read,write:{hash_password('b')}\ncy:{hash_password('c')}\n"
    )
    users = WebUsers(tmp_path / "users")
    assert users.find("ann", "plain") == WebUser("ann", "admin")
    assert users.find("bob", "b") == WebUser("bob", "write")
    assert users.find("cy", "c") == WebUser("cy", "admin")
    assert users.find("# x", "y") is None


def test_a_users_file_that_broke_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ann:read:{hash_password('good')}\n")
    access = WebAccess.from_options(users_file=str(tmp_path / "users"))
    with served(access.protect(application, role_for=role_for)) as port:
        (tmp_path / "users").write_text("ann:viewer\n")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/x", headers={"Authorization": "Basic " + base64.b64encode(b"ann:viewer").decode()})
        assert connection.getresponse().status == 503
        connection.close()
