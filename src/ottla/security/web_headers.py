"""Headers that keep a browser from running, framing or guessing at an answer, the same for every HTTP server of Ottla.

The answers are for programs, so a browser gets nothing from them: no script, no frame, no request. The console has pages
and replaces the policy by its own. Nothing here reads the clock, a file or the network.
"""

from __future__ import annotations

from collections.abc import Iterable

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HEAD_LINES = "".join(f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS.items())
"""For a server that writes its own heads."""
_BY_LOWER_NAME = {name.lower().encode(): (name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()}


def missing_headers(names: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """The security headers that an answer does not have yet; `names` are the names of its headers."""
    present = {name.lower() for name in names}
    return [header for name, header in _BY_LOWER_NAME.items() if name not in present]
