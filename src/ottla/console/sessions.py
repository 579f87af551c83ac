"""Who is logged in: sessions kept here, so that a log-out ends one for good. The browser holds a random token and no more.

Bounded: when there are too many, the session that was used least recently goes. A restart ends all.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass

from ottla.console.oidc import Identity

SESSION_S = 12 * 3600.0
MAX_SESSIONS = 10_000
MAX_SESSIONS_OF_ONE = 100
"""Sessions of one name: a person who logs in again and again ends no session of other people."""


@dataclass(slots=True, kw_only=True)
class LoginSession:
    name: str
    until: float
    """Seconds since 1970. After that the user must log in again, also when the provider would still accept the user."""
    identity: Identity | None = None
    """None: a user of the users file."""
    renewing: asyncio.Task[Identity | None] | None = None
    """The question to the provider for a fresh identity: requests that come together share one and wait for it."""


class Sessions:
    def __init__(self) -> None:
        self._sessions: OrderedDict[str, LoginSession] = OrderedDict()
        self._of_name: Counter[str] = Counter()

    def begin(self, name: str, identity: Identity | None = None) -> str:
        """A new token for every login: one that was planted in the browser before is worth nothing."""
        if self._of_name[name] >= MAX_SESSIONS_OF_ONE:
            self.end(next(token for token, session in self._sessions.items() if session.name == name))
        token = secrets.token_urlsafe(32)
        self._sessions[token] = LoginSession(name=name, until=time.time() + SESSION_S, identity=identity)
        self._of_name[name] += 1
        while len(self._sessions) > MAX_SESSIONS:
            self.end(next(iter(self._sessions)))
        return token

    def get(self, token: str) -> LoginSession | None:
        session = self._sessions.get(token)
        if session is None:
            return None
        if session.until < time.time():
            self.end(token)
            return None
        self._sessions.move_to_end(token)
        return session

    def end(self, token: str) -> LoginSession | None:
        session = self._sessions.pop(token, None)
        if session is not None:
            self._of_name[session.name] -= 1
            if not self._of_name[session.name]:
                del self._of_name[session.name]
        return session
