"""Who may use the console, and what keeps other pages from using it for them.

- Without a users file everybody who reaches the port is an administrator, as with the broker's port.
- With one, people log in; a session is a signed cookie (HttpOnly, SameSite=Strict). Roles: viewer, operator, admin.
  Users, passwords, tokens and roles are `ottla.security.web`'s; a program shows basic or bearer credentials.
- Every request that changes something carries the session's CSRF token and comes from our own origin.
- Requests name a host that we serve: a foreign name resolved to this address (DNS rebinding) is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode

from starlette.requests import Request

from ottla.console.errors import ConsoleError
from ottla.security.web import TooManyFailures, WebAccess, WebAccessError, WebUser
from ottla.security.web_hosts import WebHosts

COOKIE = "ottla-console"
_SESSION_S = 12 * 3600
_FAILED_LOGIN_S = 1.0

ANYBODY = WebUser("", "admin")


def address_of(request: Request) -> str:
    """Of the peer."""
    return request.client.host if request.client is not None else ""


class AccessControl:
    def __init__(self, web: WebAccess, *, read_only: bool, hosts: tuple[str, ...]) -> None:
        self._web = web
        self._read_only = read_only
        self._hosts = WebHosts(hosts)
        self._secret = secrets.token_bytes(32)

    @property
    def login_needed(self) -> bool:
        return not self._web.open

    # Every request

    def check_host(self, request: Request) -> None:
        refused = self._hosts.refusal(request.method, request.headers, forms=True)
        if refused is not None:
            raise ConsoleError(refused.message, status=refused.status)

    async def identify(self, request: Request) -> WebUser | None:
        """Who asks, found once for a request; None: must log in first."""
        shown = request.headers.get("authorization")
        try:
            if not self.login_needed:
                user: WebUser | None = ANYBODY
            elif shown is not None:
                user = await self._web.user(shown, address_of(request))
            else:
                user = self._of_session(request)
        except TooManyFailures as error:
            raise ConsoleError(f"{error}; try again in {error.retry_after_s} s", status=429) from error
        except WebAccessError as error:
            raise ConsoleError(str(error), status=500) from error
        request.state.user = user
        return user

    def user(self, request: Request) -> WebUser | None:
        found: WebUser | None = getattr(request.state, "user", None)
        return found

    def _of_session(self, request: Request) -> WebUser | None:
        """As the users file has them now: who is taken out of it is out."""
        claims = self._open(request.cookies.get(COOKIE, ""))
        if claims is None or float(claims.get("until", 0)) < time.time() or self._web.users is None:
            return None
        return self._web.users.named(str(claims["name"]))

    def csrf(self, request: Request) -> str:
        """Bound to the session cookie, or to this process where there is none."""
        bound = request.cookies.get(COOKIE, "") if self.login_needed else ""
        return hmac.new(self._secret, b"csrf:" + bound.encode(), hashlib.sha256).hexdigest()

    def check_change(self, request: Request, token: str, role: str) -> None:
        """ConsoleError unless this request may change things."""
        origin = request.headers.get("origin")
        if (
            origin
            and origin != "null"
            and origin.split("://", 1)[-1].lower() != (request.headers.get("host") or "").lower()
        ):
            raise ConsoleError("a page of another site sent this; refused", status=403)
        bearer = (request.headers.get("authorization") or "")[:7].lower() == "bearer "
        if bearer and self.login_needed:
            pass  # no browser sends a token by itself, so no other page can have sent this
        elif not hmac.compare_digest(token.encode(), self.csrf(request).encode()):
            raise ConsoleError("the form is too old or not ours; load the page again", status=403)
        if self._read_only:
            raise ConsoleError("this console is read only", status=403)
        user = self.user(request)
        if user is None or not user.may(role):
            raise ConsoleError(f"this needs the role {role}", status=403)

    # Sessions

    async def login(self, name: str, password: str, address: str) -> str | None:
        """The session cookie, or None; the caller waits `failed_login_s` before it says so. Raises ConsoleError when the
        address has failed too often or the users file cannot be read."""
        try:
            user = await self._web.check(name, password, address)
        except TooManyFailures as error:
            raise ConsoleError(f"{error}; try again in {error.retry_after_s} s", status=429) from error
        except WebAccessError as error:
            raise ConsoleError(str(error), status=500) from error
        return self._seal({"name": name, "until": time.time() + _SESSION_S}) if user is not None else None

    @property
    def failed_login_s(self) -> float:
        return _FAILED_LOGIN_S

    def _seal(self, claims: dict[str, object]) -> str:
        body = urlsafe_b64encode(json.dumps(claims).encode()).decode()
        return body + "." + hmac.new(self._secret, body.encode(), hashlib.sha256).hexdigest()

    def _open(self, cookie: str) -> dict[str, float | str] | None:
        body, _, mark = cookie.partition(".")
        expected = hmac.new(self._secret, body.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(mark.encode(), expected.encode()):
            return None
        claims: dict[str, float | str] = json.loads(urlsafe_b64decode(body))
        return claims
