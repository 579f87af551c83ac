"""Basic authentication from a file of users: NAME:PASSWORD, or NAME:pbkdf2_sha256$ITERATIONS$SALT$HASH (hex)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from ottla.registry.settings import RegistryStartError

_SCHEME = "pbkdf2_sha256$"
_MAX_REMEMBERED = 1000


def read_users(path: str) -> dict[str, str]:
    """RegistryStartError with the line when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryStartError(f"cannot read the users file {path}: {error}") from error
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, secret = line.partition(":")
        if not colon or not name or not secret:
            raise RegistryStartError(f"{path}:{number}: not NAME:PASSWORD")
        users[name] = secret.strip()
    return users


class BasicAuthentication:
    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._good: dict[bytes, None] = {}
        """Headers that were right, hashed: PBKDF2 takes its time once per user, not per request."""

    def allows(self, header: str | None) -> bool:
        if not header or header[:6].lower() != "basic ":
            return False
        seen = hashlib.sha256(header.encode()).digest()
        if seen in self._good:
            return True
        try:
            name, _, password = base64.b64decode(header[6:], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        if not _matches(self._users.get(name), password):
            return False
        if len(self._good) >= _MAX_REMEMBERED:
            self._good.clear()
        self._good[seen] = None
        return True


def _matches(secret: str | None, password: str) -> bool:
    if secret is None:
        return False
    if not secret.startswith(_SCHEME):
        return hmac.compare_digest(secret.encode(), password.encode())
    try:
        iterations, salt, wanted = secret.removeprefix(_SCHEME).split("$")
        found = hashlib.pbkdf2_hmac("sha256", password.encode(), bytes.fromhex(salt), int(iterations))
        return hmac.compare_digest(found, bytes.fromhex(wanted))
    except ValueError:
        return False
