"""The secret of a delegation token: never stored, computed from its id and `delegation.token.secret.key`."""

from __future__ import annotations

import base64
import hashlib
import hmac

from ottla.security.scram import ScramCredential, new_credential


def token_hmac(secret_key: str, token_id: str) -> bytes:
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_credential(mechanism: str, secret_key: str, token_id: str) -> ScramCredential:
    """As SCRAM wants it: the base64 of the HMAC is the password. The salt follows from both, so it is not kept either."""
    secret = token_hmac(secret_key, token_id)
    salt = hashlib.sha256(b"ottla token salt" + secret + mechanism.encode()).digest()[:24]
    return new_credential(mechanism, base64.b64encode(secret).decode(), salt)
