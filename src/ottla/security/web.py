"""Access to the HTTP servers (registry, console, pipelines, a node's own): TLS, basic and bearer logins, roles.

    access = WebAccess.from_options(users_file="users", tls_key="server.pem")
    app = access.protect(app, role_for=lambda method, path: "read" if method == "GET" else "write")
    uvicorn.run(app, **access.uvicorn_options())

Roles are `read`, `write` and `admin`; each includes the roles before it (`web_users.py` has the users file). A bearer
token is a JWT signed by a key of the set at `jwks_url`; its claim `role` names the role. Without users and tokens
everybody has access, as on a listener without a login: that is for loopback. An address that fails too often waits
(`failed_logins.py`). Requests that a foreign page may have caused are refused before the login (`web_hosts.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ottla.security.failed_logins import TooManyFailures, WebLoginFailures
from ottla.security.web_hosts import WebHosts, headers_of
from ottla.security.web_users import ANYBODY, WebAccessError, WebUser, WebUsers, check_password, hash_password, is_role

__all__ = [
    "ANYBODY", "TooManyFailures", "WebAccess", "WebAccessError", "WebUser", "WebUsers", "check_password", "hash_password",
    "jwt_bearer",
]  # fmt: skip

if TYPE_CHECKING:
    import ssl

FAILURE_DELAY_S = 0.1
LOGIN_THREADS = 4
"""Threads that check tokens, and as many that check passwords."""
PROXIES = "FORWARDED_ALLOW_IPS"
"""uvicorn's environment variable: addresses of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, SendEvent], Awaitable[None]]
RoleFor = Callable[[str, str], str | None]
"""Method and path -> the required role; None for a page without a login (a health check)."""


class WebAccess:
    def __init__(
        self,
        *,
        users: WebUsers | None = None,
        bearer: Callable[[str], WebUser | None] | None = None,
        tls_key: Path | None = None,
        tls_certificate: Path | None = None,
        tls_client_ca: Path | None = None,
        realm: str = "ottla",
    ) -> None:
        """`bearer` turns a token into a user (see `jwt_bearer`), or None when it is not good."""
        self.users = users
        self.bearer = bearer
        self._tls_key = tls_key
        self._tls_certificate = tls_certificate or tls_key
        self._tls_client_ca = tls_client_ca
        self._realm = realm
        self.failures = WebLoginFailures()
        # Tokens may wait for the address of the signing keys; passwords must not wait for them.
        self._token_threads = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="tokens")
        self._password_threads = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="passwords")

    @classmethod
    def from_options(
        cls,
        *,
        users_file: str | None = None,
        jwks_url: str | None = None,
        issuer: str | None = None,
        audience: tuple[str, ...] = (),
        tls_key: str | None = None,
        tls_certificate: str | None = None,
        tls_client_ca: str | None = None,
        realm: str = "ottla",
    ) -> Self:
        """From command-line options; "" counts as not set. `jwks_url` comes from the operator, so it needs no entry in
        a list of allowed addresses. One file may hold key and certificate: then either option names it.

        Raises WebAccessError for an option that has no effect because a second option is missing.
        """
        if tls_client_ca and not (tls_key or tls_certificate):
            raise WebAccessError("--tls-client-ca has no effect without --tls-certificate: set both, or neither")
        if (issuer or audience) and not jwks_url:
            raise WebAccessError("--token-issuer and --token-audience have no effect without --jwks-url")
        return cls(
            users=WebUsers(Path(users_file)) if users_file else None,
            bearer=jwt_bearer(jwks_url, issuer=issuer or None, audience=audience) if jwks_url else None,
            tls_key=Path(tls_key or tls_certificate or "") if tls_key or tls_certificate else None,
            tls_certificate=Path(tls_certificate) if tls_certificate else None,
            tls_client_ca=Path(tls_client_ca) if tls_client_ca else None,
            realm=realm,
        )

    @property
    def open(self) -> bool:
        """Whether everybody has access without a login."""
        return self.users is None and self.bearer is None

    @property
    def scheme(self) -> str:
        return "http" if self._tls_key is None else "https"

    def uvicorn_options(self) -> dict[str, Any]:
        """Settings of uvicorn.run or uvicorn.Config: bounded connections, and TLS where there is a key.

        By default uvicorn trusts `X-Forwarded-For` from every peer on loopback. Then any local user, and anybody
        behind a tunnel, could choose the address for failed logins and audit events. So proxy headers are read
        only if the environment has `FORWARDED_ALLOW_IPS`.
        """
        from ottla.security.web_connections import bounded_protocol

        protocol = bounded_protocol(tls=self.ssl_context())
        return {"http": protocol, "ws": "none", "proxy_headers": PROXIES in os.environ}

    def _tls_options(self) -> dict[str, Any]:
        if self._tls_key is None:
            return {}
        for path in (self._tls_certificate, self._tls_key, self._tls_client_ca):
            if path is not None and not path.is_file():
                raise WebAccessError(f"cannot use the TLS certificate {path}: not a file")
        options: dict[str, Any] = {"ssl_certfile": str(self._tls_certificate), "ssl_keyfile": str(self._tls_key)}
        if self._tls_client_ca is not None:
            import ssl

            options |= {"ssl_ca_certs": str(self._tls_client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options

    def ssl_context(self) -> ssl.SSLContext | None:
        """None without a key. Raises WebAccessError for files that cannot be used."""
        options = self._tls_options()
        if not options:
            return None
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(options["ssl_certfile"], options["ssl_keyfile"])
            if "ssl_ca_certs" in options:
                context.load_verify_locations(options["ssl_ca_certs"])
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise WebAccessError(f"cannot use the TLS certificate {options['ssl_certfile']}: {error}") from error
        return context

    async def user(self, authorization: str | None, address: str = "") -> WebUser | None:
        """The user of an Authorization header; None if it names no valid user. Raises TooManyFailures if the address
        must wait.
        """
        if self.open:
            return ANYBODY
        scheme, _, value = (authorization or "").partition(" ")
        if scheme.lower() == "basic" and self.users is not None:
            try:
                name, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
            except ValueError:  # no base64, a letter that is not ASCII, or no UTF-8
                return None
            return await self.check(name, password, address)
        if scheme.lower() == "bearer" and self.bearer is not None:
            user = await asyncio.get_running_loop().run_in_executor(self._token_threads, self.bearer, value.strip())
            if user is None:
                self.failures.check(address)
                self.failures.failed(address)
            return user
        return None

    async def check(self, name: str, password: str, address: str) -> WebUser | None:
        """The user of a name and a password. Raises TooManyFailures if the address must wait. A password that was
        right in the last minute is accepted all the same, so that other users behind the same address can continue.
        """
        if self.users is None:
            return None
        remembered_user = self.users.remembered(name, password)
        if remembered_user is not None:
            return remembered_user
        async with self.failures.attempt(address):
            user = await asyncio.get_running_loop().run_in_executor(
                self._password_threads, self.users.find, name, password
            )
            if user is None:
                self.failures.failed(address)
            return user

    def protect(self, app: App, *, role_for: RoleFor, hosts: WebHosts | None = None) -> App:
        """An ASGI application that answers only users with the role; `scope["user"]` is the WebUser."""

        async def guarded(scope: Scope, receive: Receive, send: SendEvent) -> None:
            if scope["type"] not in ("http", "websocket"):
                await app(scope, receive, send)
                return
            headers = headers_of(scope)
            refused = hosts.refusal(scope.get("method", "GET"), headers) if hosts is not None else None
            if refused is not None:
                await refuse(scope, send, refused.status, message=refused.message)
                return
            needed = role_for(scope.get("method", "GET"), scope["path"])
            if needed is None or self.open:
                scope["user"] = ANYBODY
                await app(scope, receive, send)
                return
            try:
                user = await self.user(headers.get("authorization"), client_of(scope))
            except TooManyFailures as error:
                wait = [(b"retry-after", str(error.retry_after_s).encode())]
                await refuse(scope, send, 429, wait, message=str(error))
                return
            except WebAccessError as error:  # the users file has changed and cannot be read: every login is refused
                await refuse(scope, send, 503, message=str(error))
                return
            if user is None:
                await asyncio.sleep(FAILURE_DELAY_S if "authorization" in headers else 0)
                await refuse(scope, send, 401, self._challenge(), message="Unauthorized")
                return
            scope["user"] = user
            if user.may(needed):
                await app(scope, receive, send)
            else:
                await refuse(scope, send, 403, message="Forbidden")

        return guarded

    def _challenge(self) -> list[tuple[bytes, bytes]]:
        schemes = [("Basic", self.users), ("Bearer", self.bearer)]
        return [(b"www-authenticate", f'{scheme} realm="{self._realm}"'.encode()) for scheme, there in schemes if there]


def client_of(scope: Scope) -> str:
    """The address of the peer."""
    client = scope.get("client")
    return str(client[0]) if client else ""


async def refuse(
    scope: Scope, send: SendEvent, status: int, headers: Iterable[tuple[bytes, bytes]] = (), *, message: str
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = json.dumps({"error_code": status, "message": message}).encode()
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def jwt_bearer(
    jwks_url: str, *, issuer: str | None = None, audience: tuple[str, ...] = (), role_claim: str = "role"
) -> Callable[[str], WebUser | None]:
    """Bearer tokens signed by a key of the set; the claim `role` names the role, `read` without it."""
    from ottla.security.jwks import JwksError, UrlKeys, open_keys
    from ottla.security.oauthbearer import TokenRefused, TokenRules, claimed_groups, token_claims

    try:
        keys = open_keys(jwks_url, [jwks_url])
    except JwksError as error:
        raise WebAccessError(str(error)) from error
    rules = TokenRules(keys=keys, issuer=issuer, audience=audience)

    def claims_of(token: str) -> dict[str, Any]:
        """Retries with fresh keys if the token names an unknown key; `UrlKeys` limits how often keys are fetched."""
        if not isinstance(keys, UrlKeys):
            return token_claims(token, rules, int(time.time() * 1000))
        keys.refresh_if_due()
        try:
            return token_claims(token, rules, int(time.time() * 1000))
        except TokenRefused:
            if not keys.refresh_due:
                raise
            keys.refresh_if_due()
            return token_claims(token, rules, int(time.time() * 1000))

    def find(token: str) -> WebUser | None:
        try:
            claims = claims_of(token)
        except (TokenRefused, JwksError):
            return None
        role = claims.get(role_claim, "read")
        return WebUser(str(claims["sub"]), role, claimed_groups(claims)) if is_role(role) else None

    return find
