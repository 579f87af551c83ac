"""SASL/PLAIN (RFC 4616): one message, authorization id, name and password; the users come from the JAAS entry."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from ottla.security.sasl import SaslFailure, check_authorization_id

_USER = "user_"
_MOST_TOKENS = 4  # Kafka counts no further


def users_of(options: Mapping[str, str]) -> dict[str, bytes]:
    """Name -> password of the `user_NAME` options."""
    return {name[len(_USER) :]: value.encode() for name, value in options.items() if name.startswith(_USER)}


class PlainServer:
    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        self.complete = False
        self.name = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def evaluate(self, response: bytes) -> bytes:
        try:
            parts = response.decode().split("\0")
        except UnicodeDecodeError as error:
            raise SaslFailure from error
        if len(parts) != 3:
            raise SaslFailure(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), _MOST_TOKENS)}")
        authorization_id, name, password = parts
        for what, credential in (("username", name), ("password", password)):
            if not credential:
                raise SaslFailure(f"Authentication failed: {what} not specified")
        expected = self._users.get(name)
        # An unknown name is compared too, in constant time: timing reveals no name and no password (CVE-2021-38153).
        matches = hmac.compare_digest(expected if expected is not None else b"", password.encode())
        if expected is None or not matches:
            raise SaslFailure("Authentication failed: Invalid username or password")
        check_authorization_id(authorization_id, name)
        self.name = name
        self.complete = True
        return b""


def client_message(name: str, password: str) -> bytes:
    return f"\0{name}\0{password}".encode()
