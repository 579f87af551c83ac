"""One SASL exchange on the server's side: bytes of the client in, bytes for the client out, until it is complete.

A mechanism never touches a socket, a clock or the configuration: its constructor gets all that it needs. A refusal is
`SaslFailure`. Its message goes to the client, so the message never names the wrong part of a credential.
"""

from __future__ import annotations

from typing import Protocol

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
SCRAM_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


class SaslFailure(Exception):
    """The login is refused. Without a message the client gets only "invalid credentials", as from Kafka."""


class SaslServer(Protocol):
    complete: bool
    name: str
    """The name that the client has proved; set only when complete."""
    expires_at_ms: int | None
    """When the credential itself ends (a token's expiry); None when it does not."""
    token_authenticated: bool
    """Logged in with a delegation token: such a session may not make further tokens."""

    def evaluate(self, response: bytes) -> bytes: ...


def check_authorization_id(authorization_id: str, name: str) -> None:
    """No user acts for a different user (CVE-2017-12610)."""
    if authorization_id and authorization_id != name:
        raise SaslFailure("Authentication failed: Client requested an authorization id that is different from username")
