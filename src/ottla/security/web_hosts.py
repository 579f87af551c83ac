"""Refuses requests that a foreign page may have caused in a user's browser, before the login is checked.

- DNS rebinding: the `Host` header must name this server. A foreign name that resolves to this address is refused. An IP
  address is accepted: a browser sends an address only if the page's own URL has it, and an address cannot be rebound.
- CSRF: a request that changes something must come from no page, or from a page of this server (`Origin`,
  `Sec-Fetch-Site`).
- A body must have a content type that an HTML form cannot send: browsers send forms without this server's permission.

Nothing here reads the clock, a file or the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ottla.security.hosts import LOOPBACK_NAMES, bare_host, is_address

ANY = "*"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
_FOREIGN = frozenset({"cross-site", "same-site"})


class Refused(NamedTuple):
    status: int
    message: str


class WebHosts:
    def __init__(self, names: Iterable[str], *, setting: str = "--allowed-host") -> None:
        """`names`: host names, `.example.org` for every name below it, `*` for all. `setting` is named in a refusal."""
        host_patterns = {bare_host(name) for name in (*LOOPBACK_NAMES, *names) if name}
        self._any = ANY in host_patterns
        self._names = frozenset(name for name in host_patterns if not name.startswith("."))
        self._suffixes = tuple(name for name in host_patterns if name.startswith("."))
        self._setting = setting

    def knows(self, host: str) -> bool:
        name = bare_host(host)
        return self._any or name in self._names or name.endswith(self._suffixes or ("\0",)) or is_address(name)

    def refusal(self, method: str, headers: Mapping[str, str], *, forms: bool = False) -> Refused | None:
        """Why a request is refused; None if it is not. `headers` have names in lower case. `forms`: this server
        accepts HTML forms, and protects them by its own token.
        """
        host = headers.get("host")
        if host is not None and not self.knows(host):
            return Refused(
                421, f"this server does not have the name {bare_host(host)!r}: allow the name with {self._setting}"
            )
        if method in READING:
            return None
        if _is_foreign(headers, null_is_ours=forms):
            return Refused(403, "a page of another site sent this request; a change must come from this server's pages")
        return None if forms else _content_type(headers)


def host_names(listen_host: str, *more: str, machine: str = "") -> tuple[str, ...]:
    """Names of a server: its listen address, its advertised addresses, and the machine's name if it listens on every
    address.
    """
    everywhere = bare_host(listen_host) in ("", "0.0.0.0", "::")  # noqa: S104 - compared with, never bound
    hosts = (urlsplit(address).hostname or "" if "://" in address else address for address in more)
    return tuple(name for name in (machine if everywhere else listen_host, *hosts) if name)


def headers_of(scope: MutableMapping[str, Any]) -> dict[str, str]:
    """The headers of an ASGI request, names in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_foreign(headers: Mapping[str, str], *, null_is_ours: bool) -> bool:
    """A form of our own page has the origin `null` if the page sends no referrer (Fetch, "append a request Origin
    header"). Then `Sec-Fetch-Site` and the form's token decide."""
    origin = headers.get("origin")
    if origin is not None and not (null_is_ours and origin == "null"):
        return origin.partition("://")[2].lower() != (headers.get("host") or "").lower()
    return headers.get("sec-fetch-site", "").strip().lower() in _FOREIGN


def _content_type(headers: Mapping[str, str]) -> Refused | None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in headers
    if kind in _FORMS or (has_body and not kind):
        shown = kind or "no content type"
        return Refused(415, f"HTTP 415 Unsupported Media Type: {shown}; send Content-Type: application/json "
                            "(curl: -H 'Content-Type: application/json')")  # fmt: skip
    return None
