"""Who is logged in: sessions kept here, so that a log-out ends one for good. The browser holds a random token and no more.

Bounded: when there are too many, the session that was used least recently goes. A restart ends all.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

from ottla.console.oidc import Identity

SESSION_S = 12 * 3600.0
MAX_SESSIONS = 10_000


@dataclass(slots=True, kw_only=True)
class LoginSession:
    name: str
    until: float
    """Seconds since 1970; a new login is needed then, whatever the provider says."""
    identity: Identity | None = None
    """None: a user of the users file."""
    renewing: bool = False
    """Whether a request is asking the provider for a fresh identity."""


class Sessions:
    def __init__(self) -> None:
        self._sessions: OrderedDict[str, LoginSession] = OrderedDict()

    def begin(self, name: str, identity: Identity | None = None) -> str:
        """A new token for every login: one that was planted in the browser before is worth nothing."""
        token = secrets.token_urlsafe(32)
        self._sessions[token] = LoginSession(name=name, until=time.time() + SESSION_S, identity=identity)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def get(self, token: str) -> LoginSession | None:
        found = self._sessions.get(token)
        if found is None:
            return None
        if found.until < time.time():
            self.end(token)
            return None
        self._sessions.move_to_end(token)
        return found

    def end(self, token: str) -> LoginSession | None:
        return self._sessions.pop(token, None)
