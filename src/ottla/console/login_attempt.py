"""One login on its way: made when the browser leaves for the provider, kept in the browser's cookie until it comes back.

The cookie is signed, so that no other site can begin a login for this browser. The console keeps no copy.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ATTEMPT_S = 600.0
_MAX_PATH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    next: str
    until: float

    def claims(self) -> dict[str, Any]:
        return asdict(self)


def new_attempt(redirect_uri: str, after: str) -> Attempt:
    return Attempt(
        state=secrets.token_urlsafe(24),
        nonce=secrets.token_urlsafe(24),
        verifier=secrets.token_urlsafe(48),
        redirect_uri=redirect_uri,
        next=local_path(after),
        until=time.time() + ATTEMPT_S,
    )


def kept_attempt(claims: Mapping[str, Any] | None) -> Attempt | None:
    """The attempt of a cookie whose signature held; None when there is none or it is too old."""
    if claims is None or float(claims.get("until", 0)) < time.time():
        return None
    return Attempt(**claims)


def local_path(path: str) -> str:
    """A path of this console to show after the login, or "/"; no different site (`//host`, backslashes, `https:`)."""
    plain = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if plain and len(path) <= _MAX_PATH and not path.startswith(("/oidc/", "/login", "/logout")) else "/"
