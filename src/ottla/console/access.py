"""Who may use the console, and what keeps other pages from using it for them.

- Without a users file everybody who reaches the port is an administrator, as with the broker's port.
- With one, people log in; a session is a signed cookie (HttpOnly, SameSite=Strict). Roles: viewer, operator, admin.
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
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from ottla.console.errors import ConsoleError

COOKIE = "ottla-console"
ROLES = ("viewer", "operator", "admin")
_SESSION_S = 12 * 3600
_FAILED_LOGIN_S = 1.0
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: str

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


ANYBODY = User("", "admin")


class AccessControl:
    def __init__(self, users_file: str, *, read_only: bool, hosts: tuple[str, ...]) -> None:
        self._users_file = users_file
        self._read_only = read_only
        self._hosts = frozenset(host.lower() for host in hosts)
        self._secret = secrets.token_bytes(32)

    @property
    def login_needed(self) -> bool:
        return bool(self._users_file)

    # Every request

    def check_host(self, request: Request) -> None:
        host = (request.headers.get("host") or "").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self._hosts and name not in self._hosts:
            raise ConsoleError(f"this console is not served as {name!r}; add it with --allowed-host", status=421)

    def user(self, request: Request) -> User | None:
        """None: must log in first."""
        if not self.login_needed:
            return ANYBODY
        claims = self._open(request.cookies.get(COOKIE, ""))
        if claims is None or float(claims.get("until", 0)) < time.time():
            return None
        return User(str(claims["name"]), str(claims["role"]))

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
        if not hmac.compare_digest(token.encode(), self.csrf(request).encode()):
            raise ConsoleError("the form is too old or not ours; load the page again", status=403)
        if self._read_only:
            raise ConsoleError("this console is read only", status=403)
        user = self.user(request)
        if user is None or not user.may(role):
            raise ConsoleError(f"this needs the role {role}", status=403)

    # Sessions

    def login(self, name: str, password: str) -> str | None:
        """The session cookie, or None; the caller waits `failed_login_s` before it says so."""
        users = load_users(self._users_file)
        known = users.get(name)
        stored = known[0] if known else hash_password("nobody", b"0" * 16)
        if not check_password(password, stored) or known is None:
            return None
        return self._seal({"name": name, "role": known[1], "until": time.time() + _SESSION_S})

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


def load_users(path: str) -> dict[str, tuple[str, str]]:
    """Name -> (hash, role); one `name:role:hash` a line."""
    users = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConsoleError(f"the users file {path} cannot be read: {error.strerror}", status=500) from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.strip().split(":", 2)
        if len(parts) != 3 or parts[1] not in ROLES:
            raise ConsoleError(
                f"{path}, line {number}: write name:role:hash with a role of {', '.join(ROLES)}", status=500
            )
        users[parts[0]] = (parts[2], parts[1])
    return users


def hash_password(password: str, salt: bytes | None = None) -> str:
    salt = secrets.token_bytes(16) if salt is None else salt
    made = hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT)
    return f"scrypt${urlsafe_b64encode(salt).decode()}${urlsafe_b64encode(made).decode()}"


def check_password(password: str, stored: str) -> bool:
    kind, _, rest = stored.partition("$")
    salt, _, wanted = rest.partition("$")
    if kind != "scrypt":
        return False
    made = hashlib.scrypt(password.encode(), salt=urlsafe_b64decode(salt), **_SCRYPT)
    return hmac.compare_digest(made, urlsafe_b64decode(wanted))
