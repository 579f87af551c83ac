"""What the console asks other servers over HTTP with: a login in the address, or the one for nodes.

A login is sent over HTTPS, or to a loopback address, and nowhere else: an address that a broker's settings name must not
get a password in the clear. Certificates are checked against the system's authorities, or those of `SSL_CERT_FILE`.
"""

from __future__ import annotations

import base64
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from ottla.console.errors import ConsoleError
from ottla.security.hosts import is_loopback


class Upstream(NamedTuple):
    url: str
    """Without the login."""
    headers: dict[str, str]


def upstream(url: str, what: str) -> Upstream:
    """Of an address that the operator gave, which may hold NAME:PASSWORD@. Raises ConsoleError when it is not http(s)."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ConsoleError(f"the address of {what} must begin with http:// or https://")
    login = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
    return Upstream(bare, {} if login is None else basic(login))


def node_headers(url: str, login: str | None) -> dict[str, str]:
    """For an address that a broker's settings name."""
    parts = urlsplit(url)
    return basic(login) if login and (parts.scheme == "https" or is_loopback(parts.hostname or "")) else {}


def basic(login: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
