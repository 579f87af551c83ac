"""Who may use the console, and what keeps other pages from using it for them.

- Without a users file everybody who reaches the port is an administrator, as with the broker's port.
- With a users file, or with an OpenID provider (`oidc.py`), people log in. The cookie is HttpOnly and SameSite=Strict
  and names a session in this process (`sessions.py`). Roles: viewer, operator, admin, everywhere or on what grants
  name. Users, passwords, tokens and roles are `ottla.security.web`'s; a program shows basic or bearer credentials.
- Every request that changes something carries the session's CSRF token and comes from our own origin.
- Requests name a host that we serve: a foreign name resolved to this address (DNS rebinding) is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from starlette.requests import Request

from ottla.console.errors import ConsoleError
from ottla.console.oidc import Identity, Provider, ProviderCalls
from ottla.console.sessions import LoginSession, Sessions
from ottla.runtime.shared_futures import outcome_of
from ottla.security.grants import CONSUMER_GROUP, SUBJECT, TOPIC, GrantedUser, everywhere, granted
from ottla.security.ruled_access import RuledAccess
from ottla.security.web import TooManyFailures, WebAccessError, WebUser
from ottla.security.web_hosts import WebHosts

COOKIE = "ottla-console"
_UNAVAILABLE = 503
_FAILED_LOGIN_S = 1.0
_ASK_AGAIN_S = 5.0
"""How long an answer that goes on for long may go on after its person has lost a right."""
_RESOURCE_OF = {"topic": TOPIC, "group": CONSUMER_GROUP, "subject": SUBJECT}
"""What a parameter of an address names."""

ANYBODY = everywhere(WebUser("", "admin"), authenticated=False)


def address_of(request: Request) -> str:
    """Of the peer."""
    return request.client.host if request.client is not None else ""


class AccessControl:
    def __init__(self, web: RuledAccess, *, read_only: bool, hosts: tuple[str, ...]) -> None:
        self._web = web
        self._read_only = read_only
        self._hosts = WebHosts(hosts)
        # Two keys: a person chooses some of the bytes under a form's token, and none of them must pass as a sealed cookie.
        self._form_key = secrets.token_bytes(32)
        self._seal_key = secrets.token_bytes(32)
        self.rules = web.rules
        self.sessions = Sessions()
        self.provider = Provider(web.rules.oidc) if web.rules.oidc is not None else None
        self.provider_calls = ProviderCalls()

    @property
    def has_users(self) -> bool:
        """Whether people may log in with a name and a password."""
        return self._web.users is not None

    @property
    def login_needed(self) -> bool:
        return not self._web.open

    # Every request

    def check_host(self, request: Request) -> None:
        refused = self._hosts.refusal(request.method, request.headers, forms=True)
        if refused is not None:
            raise ConsoleError(refused.message, status=refused.status)

    async def identify(self, request: Request) -> GrantedUser | None:
        """Who asks, found once for a request; None: must log in first."""
        shown = request.headers.get("authorization")
        try:
            if not self.login_needed:
                user: GrantedUser | None = ANYBODY
            elif shown is not None:
                user = _with_rights(await self._web.user(shown, address_of(request)))
            else:
                user = await self._of_session(request.cookies.get(COOKIE, ""))
        except TooManyFailures as error:
            raise ConsoleError(f"{error}; try again in {error.retry_after_s} s", status=429) from error
        except WebAccessError as error:
            raise ConsoleError(str(error), status=500) from error
        request.state.user, request.state.identified_at = user, time.monotonic()
        return user

    def user(self, request: Request) -> GrantedUser | None:
        user: GrantedUser | None = getattr(request.state, "user", None)
        return user

    async def _of_session(self, token: str) -> GrantedUser | None:
        """As the users file or the provider has them now: who is taken out there is out."""
        session = self.sessions.get(token)
        if session is None:
            return None
        if session.identity is not None:
            identity = await self._fresh(token, session, session.identity)
            if identity is None or self._is_local(identity.name):
                return None
            return granted(self.rules.grants, identity.name, identity.groups)
        web_user = self._web.users.named(session.name) if self._web.users is not None else None
        return _with_rights(self.rules.user(web_user))

    async def _fresh(self, token: str, session: LoginSession, identity: Identity) -> Identity | None:
        """The identity, renewed at the provider when it has expired; None ends the session."""
        if time.time() < identity.fresh_until:
            return identity
        if session.renewing is None:
            session.renewing = asyncio.ensure_future(self._renew(token, session, identity))
        return await outcome_of(session.renewing)

    async def _renew(self, token: str, session: LoginSession, identity: Identity) -> Identity | None:
        provider = self.provider
        try:
            if provider is None:
                return None
            session.identity = await self.provider_calls.run(lambda: provider.refresh(identity))
        except ConsoleError as error:
            if error.status != _UNAVAILABLE:  # a provider that is away or busy has not refused this person
                self.sessions.end(token)
            return None
        finally:
            session.renewing = None
        return session.identity

    def _is_local(self, name: str) -> bool:
        """Whether the name is one of the users file. Rights go by name, so a person of the provider cannot have it."""
        try:
            return self._web.users is not None and self._web.users.named(name) is not None
        except WebAccessError as error:
            raise ConsoleError(str(error), status=500) from error

    async def still_in(self, request: Request) -> bool:
        """For an answer that goes on for long: whether its person is logged in and has the rights of its beginning.

        The session is looked up at each call; the users file, the provider or the token every `_ASK_AGAIN_S`.
        """
        if not self.login_needed:
            return True
        if "authorization" not in request.headers and self.sessions.get(request.cookies.get(COOKIE, "")) is None:
            return False
        if time.monotonic() - request.state.identified_at < _ASK_AGAIN_S:
            return True
        before = self.user(request)
        try:
            return await self.identify(request) == before
        except ConsoleError:
            return False

    def csrf(self, request: Request) -> str:
        """A token bound to the session cookie or the credentials; without a login, bound to this process only."""
        shown = (request.cookies.get(COOKIE, ""), request.headers.get("authorization", ""))
        bound = "\0".join(shown) if self.login_needed else ""
        return hmac.new(self._form_key, b"csrf:" + bound.encode(), hashlib.sha256).hexdigest()

    def check_change(self, request: Request, token: str, role: str, *, anywhere: bool = False) -> None:
        """ConsoleError unless this request may change what its address names; without a name there, the whole cluster.

        `anywhere`: the form names what is changed, and the page checks that itself.
        """
        origin = request.headers.get("origin")
        if (
            origin
            and origin != "null"
            and origin.split("://", 1)[-1].lower() != (request.headers.get("host") or "").lower()
        ):
            raise ConsoleError("a page of a different site sent this request: refused", status=403)
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
        if not anywhere:
            named = [(_RESOURCE_OF[name], value) for name, value in request.path_params.items() if name in _RESOURCE_OF]
            kind, name = named[0] if named else (None, "")
            self.require(request, role, kind, name)

    def require(self, request: Request, role: str, kind: str | None, name: str = "") -> None:
        """ConsoleError unless the user has the role on this topic, subject or group, or (None) on the whole cluster."""
        user = self.user(request)
        if user is None or not user.rights.may(role, kind, name):
            on = f" on the {kind} {name}" if kind else " on the whole cluster"
            raise ConsoleError(f"this needs the role {role}{on}", status=403)

    # Sessions

    async def login(self, name: str, password: str, address: str) -> str | None:
        """Returns the session cookie, or None if the login fails.

        The caller waits `failed_login_s` before it reports a failed login.
        Raises ConsoleError if the address has failed too often or the users file cannot be read.
        """
        try:
            user = await self._web.check(name, password, address)
        except TooManyFailures as error:
            raise ConsoleError(f"{error}; try again in {error.retry_after_s} s", status=429) from error
        except WebAccessError as error:
            raise ConsoleError(str(error), status=500) from error
        return self.sessions.begin(name) if user is not None and self.rules.user(user) is not None else None

    def login_as(self, identity: Identity) -> str:
        """Returns the session cookie of a user of the provider. Raises ConsoleError for a user whom no grant names."""
        if self._is_local(identity.name):
            raise ConsoleError(
                f"{identity.name} is a name of the users file; log in with its password, or ask the administrator to "
                "rename one of the two",
                status=403,
            )
        if granted(self.rules.grants, identity.name, identity.groups) is None:
            raise ConsoleError(
                f"{identity.name} has no role on this console; ask its administrator for a grant", status=403
            )
        return self.sessions.begin(identity.name, identity)

    @property
    def failed_login_s(self) -> float:
        return _FAILED_LOGIN_S

    def seal(self, claims: dict[str, Any]) -> str:
        """For a cookie that only this process can have made."""
        body = urlsafe_b64encode(json.dumps(claims).encode()).decode()
        return body + "." + hmac.new(self._seal_key, body.encode(), hashlib.sha256).hexdigest()

    def unseal(self, cookie: str) -> dict[str, Any] | None:
        body, _, mark = cookie.partition(".")
        expected = hmac.new(self._seal_key, body.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(mark.encode(), expected.encode()):
            return None
        claims: dict[str, Any] = json.loads(urlsafe_b64decode(body))
        return claims


def _with_rights(web_user: WebUser | None) -> GrantedUser | None:
    return web_user if web_user is None or isinstance(web_user, GrantedUser) else everywhere(web_user)
