"""Who may use the HTTP servers (registry, console, connect): TLS, basic and bearer authentication, roles.

    access = WebAccess.from_options(users_file="users", tls_key="server.pem")
    app = access.protect(app, role_for=lambda method, path: "read" if method == "GET" else "write")
    uvicorn.run(app, **access.uvicorn_options())

The users file has one `NAME:ROLE[,ROLE]:SALTED HASH` a line; `hash_password` makes the hash (scrypt), and `ottla`'s
commands never take a password as an argument. Roles are `read`, `write` and `admin`, each holding the ones before it.
Without users and tokens everybody is let in, as by a listener without a login: that is for loopback.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROLES = ("read", "write", "admin")
MAX_REMEMBERED = 1024
REMEMBER_S = 60.0
FAILURE_DELAY_S = 0.1
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "dklen": 32, "maxmem": 64 * 1024 * 1024}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, SendEvent], Awaitable[None]]
RoleFor = Callable[[str, str], str | None]
"""Method and path -> the role that is needed; None for a page that everybody may see (a health check)."""


class WebAccessError(ValueError):
    """The users file or the TLS files cannot be used; the message holds no secret."""


@dataclass(frozen=True, slots=True)
class WebUser:
    name: str
    role: str

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


ANYBODY = WebUser("anonymous", "admin")


def hash_password(password: str, salt: bytes | None = None) -> str:
    """`scrypt$SALT$HASH`, for a line of the users file."""
    salt = os.urandom(16) if salt is None else salt
    digest = hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT)
    return f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def check_password(password: str, stored: str) -> bool:
    try:
        kind, salt, _ = stored.split("$")
        return kind == "scrypt" and hmac.compare_digest(hash_password(password, base64.b64decode(salt)), stored)
    except (ValueError, binascii.Error):
        return False


_NOBODY_HASH = "scrypt$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "="
"""Compared with when the name is unknown, so that it takes as long."""


class WebUsers:
    """The users file, read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._users: dict[str, tuple[str, str]] = {}
        self._known: dict[bytes, tuple[float, WebUser]] = {}
        self._secret = os.urandom(32)
        self._refresh()

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._seen:
                return
            self._users = dict(map(_user_line, _lines(self._path.read_text())))
        except OSError as error:
            raise WebAccessError(f"{self._path}: {error.strerror}") from error
        self._seen = stamp
        self._known.clear()

    def find(self, name: str, password: str) -> WebUser | None:
        """Blocks for some 50 ms the first time; a good password is remembered for a minute, as a keyed hash."""
        self._refresh()
        key = hmac.digest(self._secret, f"{name}\0{password}".encode(), "sha256")
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        role, stored = self._users.get(name, ("", _NOBODY_HASH))
        if not check_password(password, stored) or not role:
            return None
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        user = WebUser(name, role)
        self._known[key] = (time.monotonic() + REMEMBER_S, user)
        return user


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _user_line(line: str) -> tuple[str, tuple[str, str]]:
    parts = line.split(":")
    if len(parts) != 3 or not parts[0]:
        raise WebAccessError("a line of the users file is not NAME:ROLE:HASH")
    roles = [role.strip() for role in parts[1].split(",")]
    if not roles or any(role not in ROLES for role in roles):
        raise WebAccessError(f"user {parts[0]}: a role is one of {', '.join(ROLES)}")
    return parts[0], (max(roles, key=ROLES.index), parts[2])


class WebAccess:
    def __init__(
        self,
        *,
        users: WebUsers | None = None,
        bearer: Callable[[str], WebUser | None] | None = None,
        tls_key: Path | None = None,
        tls_client_ca: Path | None = None,
        realm: str = "ottla",
    ) -> None:
        """`bearer` turns a token into a user (see `jwt_bearer`), or None when it is not good."""
        self.users = users
        self.bearer = bearer
        self._tls_key = tls_key
        self._tls_client_ca = tls_client_ca
        self._realm = realm

    @classmethod
    def from_options(
        cls,
        *,
        users_file: str | None = None,
        jwks_url: str | None = None,
        issuer: str | None = None,
        audience: tuple[str, ...] = (),
        tls_key: str | None = None,
        tls_client_ca: str | None = None,
    ) -> WebAccess:
        """From what a command line gives. `jwks_url` is the operator's own word, so it is allowed by itself."""
        bearer = jwt_bearer(jwks_url, issuer=issuer, audience=audience) if jwks_url is not None else None
        return cls(
            users=WebUsers(Path(users_file)) if users_file is not None else None,
            bearer=bearer,
            tls_key=Path(tls_key) if tls_key is not None else None,
            tls_client_ca=Path(tls_client_ca) if tls_client_ca is not None else None,
        )

    @property
    def open(self) -> bool:
        """Whether everybody is let in."""
        return self.users is None and self.bearer is None

    def uvicorn_options(self) -> dict[str, Any]:
        """TLS settings of uvicorn.run or uvicorn.Config; none without a key."""
        if self._tls_key is None:
            return {}
        for path in (self._tls_key, self._tls_client_ca):
            if path is not None and not path.is_file():
                raise WebAccessError(f"{path} is not a file")
        options: dict[str, Any] = {"ssl_certfile": str(self._tls_key), "ssl_keyfile": str(self._tls_key)}
        if self._tls_client_ca is not None:
            import ssl

            options |= {"ssl_ca_certs": str(self._tls_client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options

    async def user(self, authorization: str | None) -> WebUser | None:
        """Of an Authorization header; None when it shows nobody."""
        if self.open:
            return ANYBODY
        scheme, _, value = (authorization or "").partition(" ")
        if scheme.lower() == "basic" and self.users is not None:
            try:
                name, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
            return await asyncio.get_running_loop().run_in_executor(None, self.users.find, name, password)
        if scheme.lower() == "bearer" and self.bearer is not None:
            return await asyncio.get_running_loop().run_in_executor(None, self.bearer, value.strip())
        return None

    def protect(self, app: App, *, role_for: RoleFor) -> App:
        """An ASGI application that lets only those in who have the role; `scope["user"]` is the WebUser."""

        async def guarded(scope: Scope, receive: Receive, send: SendEvent) -> None:
            if scope["type"] not in ("http", "websocket"):
                await app(scope, receive, send)
                return
            needed = role_for(scope.get("method", "GET"), scope["path"])
            if needed is None or self.open:
                scope["user"] = ANYBODY
                await app(scope, receive, send)
                return
            headers = dict(scope["headers"])
            user = await self.user(headers.get(b"authorization", b"").decode("latin-1"))
            if user is None:
                await asyncio.sleep(FAILURE_DELAY_S if b"authorization" in headers else 0)
                await _refuse(scope, send, 401, self._challenge())
            elif not user.may(needed):
                await _refuse(scope, send, 403, [])
            else:
                scope["user"] = user
                await app(scope, receive, send)

        return guarded

    def _challenge(self) -> list[tuple[bytes, bytes]]:
        schemes = [("Basic", self.users), ("Bearer", self.bearer)]
        return [(b"www-authenticate", f'{scheme} realm="{self._realm}"'.encode()) for scheme, there in schemes if there]


async def _refuse(scope: Scope, send: SendEvent, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = b'{"error_code":%d,"message":"%s"}' % (status, b"Unauthorized" if status == 401 else b"Forbidden")
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def jwt_bearer(
    jwks_url: str, *, issuer: str | None = None, audience: tuple[str, ...] = (), role_claim: str = "role"
) -> Callable[[str], WebUser | None]:
    """Bearer tokens signed by a key of the set; the claim `role` names the role, `read` without it."""
    from ottla.security.jwks import JwksError, UrlKeys, open_keys
    from ottla.security.oauthbearer import TokenRefused, TokenRules, token_claims

    try:
        keys = open_keys(jwks_url, [jwks_url])
    except JwksError as error:
        raise WebAccessError(str(error)) from error
    rules = TokenRules(keys=keys, issuer=issuer, audience=audience)

    def find(token: str) -> WebUser | None:
        try:
            if isinstance(keys, UrlKeys) and keys.wanted:
                keys.refresh()
            claims = token_claims(token, rules, int(time.time() * 1000))
        except (TokenRefused, JwksError):
            return None
        role = claims.get(role_claim, "read")
        return WebUser(str(claims["sub"]), role) if role in ROLES else None

    return find
