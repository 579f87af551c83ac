"""The keys that tokens are signed with: from a file, or from an address that the operator has allowed.

No address outside `ottla.sasl.oauthbearer.allowed.urls` is ever opened, redirects are not followed, and an answer is
cut off at 1 MiB. So a setting that a client can change reads no files and reaches no inner networks (CVE-2025-27817).
The file is read again when it changes. `refresh` requests an address and blocks; its callers run it off the event
loop.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from ottla.env.url_logins import has_login, without_login

MAX_BYTES = 1024 * 1024
PAUSE_S = 10.0
"""The least time between an answered request and the next request that a token causes."""
FAILURE_PAUSE_S = 1.0
FIRST_KEYS_WAIT_S = 2.0
"""How long a login waits for the first keys while a different thread requests them. Longer than that, the address
hangs, and a login is refused at once.
"""
MAX_AGE_S = 3600.0
"""The longest time that a key stays trusted after its removal from the key set."""


class JwksError(ValueError):
    """The keys cannot be read; the message is one line."""


def check_allowed(url: str, allowed: Iterable[str]) -> None:
    """Raises JwksError unless `url` equals an allowed address, character by character, as Kafka compares them. `urllib`
    sends no login of an address, and an error would show the password.
    """
    scheme = urlsplit(url).scheme.lower()
    if scheme not in ("file", "http", "https"):
        raise JwksError(f"{scheme or 'no'} scheme: the address of the signing keys must be file, http or https")
    if has_login(url):
        raise JwksError(f"{without_login(url)} has a login before the host, which is not supported")
    if url not in {entry.strip() for entry in allowed}:
        raise JwksError(f"{url} is not in ottla.sasl.oauthbearer.allowed.urls")


class FileKeys:
    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._keys: Any = None

    def current(self) -> Any:
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp != self._seen:
                with open(self._path, "rb") as file:
                    self._keys = parse_keys(file.read(MAX_BYTES))
                self._seen = stamp
        except (OSError, JwksError):
            return self._keys
        return self._keys

    def ask_again(self, kid: str | None = None) -> None:
        """A changed file is seen at the next `current`."""

    def adopt(self, _: FileKeys | UrlKeys) -> None:
        """The file is read at the next `current`."""


@dataclass(slots=True)
class FetchedKeys:
    """The keys of an address, and when the address may be requested again."""

    keys: Any = None
    key_ids: frozenset[str] = frozenset()
    refresh_requested: bool = True
    not_before: float = 0.0
    fetched_at: float = 0.0


class UrlKeys:
    """`refresh` blocks: call it from a thread. `refresh_due` is true if keys are needed and the pause is over.

    A token that names a known key causes no request, and requests to the address have a pause in between. Tokens cost
    nothing to make, so their number must not set the number of requests.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float = 10,
        max_age_s: float = MAX_AGE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self._timeout = connect_timeout_s
        self._max_age_s = max_age_s
        self._monotonic = monotonic
        self.fetched = FetchedKeys()
        self._one_at_a_time = threading.Lock()
        self._requested_at = 0.0
        """When the request that is under way began."""

    def current(self) -> Any:
        return self.fetched.keys

    @property
    def refresh_due(self) -> bool:
        return self.fetched.refresh_requested and self._monotonic() >= self.fetched.not_before

    def ask_again(self, kid: str | None = None) -> None:
        """`kid`: the key that a token names, if it names one."""
        if kid not in self.fetched.key_ids:
            self.fetched.refresh_requested = True

    def adopt(self, before: FileKeys | UrlKeys) -> None:
        """Start with the known keys of the same address."""
        if isinstance(before, UrlKeys) and before.url == self.url:
            self.fetched = replace(before.fetched)

    def refresh(self) -> None:
        fetched = self.fetched
        fetched.not_before = self._monotonic() + FAILURE_PAUSE_S
        keys = parse_keys(_get(self.url, self._timeout))
        fetched.key_ids = frozenset(str(key.kid) for key in keys.keys if key.kid is not None)
        fetched.keys, fetched.refresh_requested = keys, False
        fetched.fetched_at = self._monotonic()
        fetched.not_before = fetched.fetched_at + PAUSE_S

    def refresh_if_due(self) -> None:
        """One thread requests the keys; other threads wait for it only if there are no keys yet, and only briefly."""
        if not (self.refresh_due or self._is_old() or self._first_keys_are_coming()):
            return
        if not self._one_at_a_time.acquire(timeout=self._patience_s()):
            return
        try:
            if self.refresh_due or self._is_old():
                self._requested_at = self._monotonic()
                self.refresh()
        finally:
            self._one_at_a_time.release()

    def _first_keys_are_coming(self) -> bool:
        return self.fetched.keys is None and self._one_at_a_time.locked()

    def _patience_s(self) -> float:
        """How long to wait for the thread that requests keys; 0 does not wait."""
        if self.fetched.keys is not None:
            return 0.0
        if not self._one_at_a_time.locked():
            return FIRST_KEYS_WAIT_S
        return max(0.0, self._requested_at + FIRST_KEYS_WAIT_S - self._monotonic())

    def _is_old(self) -> bool:
        now = self._monotonic()
        return (
            self.fetched.keys is not None
            and now - self.fetched.fetched_at >= self._max_age_s
            and now >= self.fetched.not_before
        )


def parse_keys(data: bytes) -> Any:
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        return KeySet.import_key_set(json.loads(data))
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise JwksError(f"not a JSON Web Key Set ({type(error).__name__})") from None


def _get(url: str, timeout: float) -> bytes:
    from urllib.error import URLError

    from ottla.env.http_answer import HTTPException
    from ottla.env.http_request import NoRedirect
    from ottla.security.http_deadline import whole_answer

    try:
        return whole_answer(url, MAX_BYTES, timeout, NoRedirect())
    except (URLError, OSError, HTTPException, ValueError) as error:
        raise JwksError(f"{url}: {error}") from error


def open_keys(url: str, allowed: Iterable[str]) -> FileKeys | UrlKeys:
    check_allowed(url, allowed)
    parts = urlsplit(url)
    if parts.scheme.lower() == "file":
        return FileKeys(unquote(parts.path))
    return UrlKeys(url)
