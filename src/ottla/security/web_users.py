"""The users file of the HTTP servers: who they are, what they may do, how a password is checked.

    NAME:ROLE[,ROLE]:HASH     roles read, write, admin (the console's words for them: viewer, operator, admin)

    NAME:HASH or NAME:SECRET  the short form, with every right; a secret that holds a colon must be hashed

An ambiguous line is refused with its number, and so is a hash of htpasswd. `NAME:ROLE` is ambiguous: a role without a password, or a password that
is the name of a role. So is a second line for the same name. A hash is `scrypt$SALT$HASH` (base64) or
`pbkdf2_sha256$ITERATIONS$SALT$HASH` (hex). `hash_password` makes a scrypt hash; `ottla console --hash-password` prints
one. The file is read again when it changes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROLES = ("read", "write", "admin")
_RANK = {"read": 0, "viewer": 0, "write": 1, "operator": 1, "admin": 2}
MAX_REMEMBERED = 1024
REMEMBER_S = 60.0
_MAX_ITERATIONS = 10_000_000
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "dklen": 32, "maxmem": 64 * 1024 * 1024}
_SCHEMES = ("scrypt$", "pbkdf2_sha256$")
_FOREIGN_HASHES = re.compile(
    r"\$(2[abxy]?|apr1|1|5|6|7|y|argon2[a-z]*|scrypt)\$|\{(SHA|SSHA|SSHA256|SSHA512|CRYPT)\}", re.ASCII
)
"""How hashes of htpasswd, crypt and LDAP begin. As a plain secret, the hash would be the password."""


class WebAccessError(ValueError):
    """The users file or the TLS files cannot be used; the message holds no secret."""


@dataclass(frozen=True, slots=True)
class WebUser:
    name: str
    role: str
    groups: tuple[str, ...] = ()
    """The groups in a token's claim `groups`; grants (`ottla.security.grants`) may name them."""

    def may(self, role: str) -> bool:
        return _RANK[self.role] >= _RANK[role]


ANYBODY = WebUser("anonymous", "admin")


def is_role(role: object) -> bool:
    return isinstance(role, str) and role in _RANK


def hash_password(password: str, salt: bytes | None = None) -> str:
    """`scrypt$SALT$HASH`, for a line of the users file."""
    salt = os.urandom(16) if salt is None else salt
    digest = hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT)
    return f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def check_password(password: str, stored: str) -> bool:
    try:
        kind, *parts = stored.split("$")
        if kind == "scrypt":
            salt, expected = (_base64(part) for part in parts)
            made = hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT)
        elif kind == "pbkdf2_sha256":
            iterations = int(parts[0])
            salt, expected = (bytes.fromhex(part) for part in parts[1:])
            if not 0 < iterations <= _MAX_ITERATIONS:
                return False
            made = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations, len(expected))
        else:
            return False
    except (ValueError, IndexError, binascii.Error):
        return False
    return hmac.compare_digest(made, expected)


def _base64(text: str) -> bytes:
    """The standard or the URL-safe alphabet: older hashes of the console use the URL-safe alphabet."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)


_NOBODY_HASH = "scrypt$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "="
"""The hash that an unknown name is compared with, so that the check takes as long as for a known name."""


class _Entry(NamedTuple):
    user: WebUser
    secret: str

    def matches(self, password: str) -> bool:
        if self.secret.startswith(_SCHEMES):
            return check_password(password, self.secret)
        return hmac.compare_digest(self.secret.encode(), password.encode())


_NOBODY = _Entry(WebUser("", "read"), _NOBODY_HASH)


class WebUsers:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._entries: dict[str, _Entry] = {}
        self._remembered: dict[bytes, tuple[float, WebUser]] = {}
        self._secret = os.urandom(32)
        self._refresh()

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._seen:
                return
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise WebAccessError(f"the users file {self._path} cannot be read: {_reason(error)}") from None
        self._entries = _entries(lines, self._path)
        self._seen = stamp
        self._remembered.clear()

    def find(self, name: str, password: str) -> WebUser | None:
        """Blocks for some 50 ms the first time; a good password is remembered for a minute, as a keyed hash."""
        remembered_user = self.remembered(name, password)
        if remembered_user is not None:
            return remembered_user
        entry = self._entries.get(name, _NOBODY)
        if not entry.matches(password) or entry is _NOBODY:
            return None
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[self._key(name, password)] = (time.monotonic() + REMEMBER_S, entry.user)
        return entry.user

    def remembered(self, name: str, password: str) -> WebUser | None:
        """The user who logged in with this password in the last minute. Needs no password hashing."""
        self._refresh()
        remembered_login = self._remembered.get(self._key(name, password))
        return remembered_login[1] if remembered_login is not None and remembered_login[0] > time.monotonic() else None

    def _key(self, name: str, password: str) -> bytes:
        return hmac.digest(self._secret, f"{name}\0{password}".encode(), "sha256")

    def named(self, name: str) -> WebUser | None:
        """The current entry of a user who has logged in before; for sessions."""
        self._refresh()
        entry = self._entries.get(name)
        return entry.user if entry is not None else None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or "not readable") if isinstance(error, OSError) else "not UTF-8"


def _entries(lines: list[str], path: Path) -> dict[str, _Entry]:
    entries: dict[str, _Entry] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{path}, line {number}"
        entry = _entry(line.strip(), where)
        if entry.user.name in entries:
            raise WebAccessError(f"{where}: a second line for the user {entry.user.name!r}; keep one of them")
        entries[entry.user.name] = entry
    return entries


def _entry(line: str, where: str) -> _Entry:
    name, *fields = line.split(":")
    if not name or not fields or len(fields) > 2 or not fields[-1]:
        raise WebAccessError(f"{where}: write NAME:ROLE:HASH or NAME:SECRET")
    if len(fields) == 1:
        if all(is_role(word.strip().lower()) for word in fields[0].split(",")):
            raise WebAccessError(
                f"{where}: the user {name!r} has a role and no password; write NAME:ROLE:HASH, with a hash of "
                "`ottla console --hash-password`. The name of a role cannot be a plain password"
            )
        if _FOREIGN_HASHES.match(fields[0]):
            raise WebAccessError(
                f"{where}: the user {name!r} has a hash of htpasswd or crypt, which is not supported; write "
                "NAME:ROLE:HASH, with a hash of `ottla console --hash-password`"
            )
        return _Entry(WebUser(name, "admin"), fields[0])
    roles = [role.strip() for role in fields[0].split(",")]
    if not all(map(is_role, roles)):
        raise WebAccessError(f"{where}: a role is one of {', '.join(_RANK)}")
    if not fields[1].startswith(_SCHEMES):
        raise WebAccessError(
            f"{where}: the hash of the password is missing after the role; `ottla console --hash-password` "
            "prints a hash"
        )
    return _Entry(WebUser(name, max(roles, key=_RANK.__getitem__)), fields[1])
