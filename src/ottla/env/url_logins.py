"""Logins inside addresses (`https://name:password@host/`): an address is shown and logged without them."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")


def has_login(text: str) -> bool:
    return _LOGIN.search(text) is not None


def without_login(text: str) -> str:
    return _LOGIN.sub("", text)
