"""The module that registry and console stand behind: a real uvicorn, real requests."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from joserfc import jwk, jwt

from ottla.security.web import WebAccess, WebAccessError, WebUsers, check_password, hash_password
from tests.security.secured import Certificates


async def application(scope: Any, receive: Any, send: Any) -> None:
    body = scope["user"].name.encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def role_for(method: str, path: str) -> str | None:
    if path == "/health":
        return None
    return "read" if method == "GET" else "write"


@pytest.fixture
def signing_key() -> Any:
    return jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)


@pytest.fixture
def server(tmp_path: Path, signing_key: Any) -> Iterator[tuple[str, str]]:
    """(address, file of the authority)."""
    certificates = Certificates(tmp_path)
    users = tmp_path / "users"
    users.write_text(f"# comment\nreader:read:{hash_password('r-pass')}\nwriter:read,write:{hash_password('w-pass')}\n")
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [signing_key.as_dict(private=False)]}))
    access = WebAccess.from_options(
        users_file=str(users), jwks_url=f"file://{jwks}", issuer="us", audience=("ottla",),
        tls_key=str(certificates.issue("web")),
    )  # fmt: skip
    config = uvicorn.Config(
        access.protect(application, role_for=role_for), port=0, log_level="error", **access.uvicorn_options()
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve()), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not running.started:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    port = running.servers[0].sockets[0].getsockname()[1]
    yield f"https://127.0.0.1:{port}", str(certificates.authority_file)
    running.should_exit = True
    thread.join(10)


def token(key: Any, **claims: Any) -> str:
    facts = {"iss": "us", "aud": "ottla", "sub": "tok", "exp": int(time.time()) + 60, **claims}
    return jwt.encode({"alg": "RS256", "kid": "k1"}, facts, key)


def test_people_tokens_and_roles(server: tuple[str, str], signing_key: Any) -> None:
    address, authority = server
    other = jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
    with httpx.Client(base_url=address, verify=authority) as client:

        def status(method: str, path: str = "/x", **kwargs: Any) -> int:
            return client.request(method, path, **kwargs).status_code

        assert status("GET", "/health") == 200
        assert status("GET") == 401
        assert client.get("/x").headers["www-authenticate"].startswith("Basic")
        assert client.get("/x", auth=("reader", "r-pass")).text == "reader"
        assert status("GET", auth=("reader", "wrong")) == 401
        assert status("GET", auth=("nobody", "r-pass")) == 401
        assert status("POST", auth=("reader", "r-pass")) == 403
        assert status("POST", auth=("writer", "w-pass")) == 200

        def bearer(**claims: Any) -> dict[str, str]:
            return {"Authorization": f"Bearer {token(signing_key, **claims)}"}

        assert client.get("/x", headers=bearer()).text == "tok"
        assert status("POST", headers=bearer()) == 403
        assert status("POST", headers=bearer(role="write")) == 200
        assert status("GET", headers=bearer(exp=int(time.time()) - 3600)) == 401
        assert status("GET", headers=bearer(iss="them")) == 401
        assert status("GET", headers=bearer(aud="others")) == 401
        assert status("GET", headers={"Authorization": f"Bearer {token(other)}"}) == 401
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        body = token(signing_key).split(".")[1]
        assert status("GET", headers={"Authorization": f"Bearer {none}.{body}."}) == 401
        for garbage in ("Basic !!!", "Basic " + base64.b64encode(b"\xff\xfe").decode(), "Bearer a.b.c", "Bearer", "X"):
            assert status("GET", headers={"Authorization": garbage}) == 401


def test_the_users_file_is_followed_and_its_mistakes_are_named_without_values(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"a:read:{hash_password('one')}\n")
    users = WebUsers(path)
    assert users.find("a", "one") is not None
    path.write_text(f"a:read:{hash_password('two-and-longer')}\n#\n")
    assert users.find("a", "one") is None
    assert users.find("a", "two-and-longer") is not None
    path.write_text("a:emperor:s3cret-hash\n")
    with pytest.raises(WebAccessError) as mistake:
        users.find("a", "one")
    assert "s3cret" not in str(mistake.value)


@pytest.mark.parametrize(
    "foreign",
    [
        "$2y$05$bbC4RQ1PZqBxbWl9xJqvqe3p9Y8o1n3kq8b1Y1Y1Y1Y1Y1Y1Y1Y1Y",
        "$apr1$abcdefgh$ABCDEFGHIJKLMNOPQRSTU/",
        "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
        "$6$salt$hash",
        "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA",
    ],
)
def test_a_hash_of_htpasswd_is_not_a_password(tmp_path: Path, foreign: str) -> None:
    """The hash itself was the password, with every right, and the password behind the hash was refused."""
    file = tmp_path / "users"
    file.write_text(f"alice:{foreign}\n")
    with pytest.raises(WebAccessError, match="line 1: the user 'alice' has a hash of htpasswd") as refused:
        WebUsers(file)
    assert foreign not in str(refused.value)
    file.write_text("alice:$ecret{SHA}\n")
    assert WebUsers(file).find("alice", "$ecret{SHA}") is not None


def test_hashes() -> None:
    assert check_password("p", hash_password("p"))
    assert not check_password("q", hash_password("p"))
    assert hash_password("p") != hash_password("p")
    assert not check_password("p", "plain$x$y")
