"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677): both sides of the exchange and the credential that is stored.

The nonce of the final message must be the whole nonce of this exchange (CVE-2024-56128); proofs are compared in constant
time (CVE-2021-38153). No SASLprep, as in Kafka: names and passwords are their UTF-8 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from ottla.security.sasl import SCRAM_SHA_256, SCRAM_SHA_512, SaslFailure, check_authorization_id

DIGESTS = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
CODES = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
NAMES = {code: name for name, code in CODES.items()}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
_NO_CHANNEL_BINDING = b"n,,"
_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00]|=2C|=3D)+))?,(?P<bare>(?:m=[^,]*,)?n=(?P<name>(?:[^=,\x00]|=2C|=3D)*),"
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,(?P<extensions>.*))?)"
)
_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9/+]+={0,2}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.+)?),p=(?P<proof>[A-Za-z0-9/+]+={0,2})"
)
_SERVER_FIRST = re.compile(r"r=(?P<nonce>[^,]+),s=(?P<salt>[A-Za-z0-9/+]+={0,2}),i=(?P<iterations>\d{1,9})(?:,.*)?")


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The stored credential. Neither the password nor the salted password can be computed from it."""
    digest = DIGESTS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", digest)
    return ScramCredential(
        salt, hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest), iterations
    )


def new_credential(mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


class ScramUser(NamedTuple):
    """The result of a look-up: the credential, and the name of a session that uses it."""

    credential: ScramCredential
    name: str
    expires_at_ms: int | None = None


class ScramServer:
    """`find(name, by_token)` is called once, for the name in the first message."""

    def __init__(
        self, mechanism: str, find: Callable[[str, bool], ScramUser | None], new_nonce: Callable[[], str]
    ) -> None:
        self._digest = DIGESTS[mechanism]
        self._find = find
        self._new_nonce = new_nonce
        self._user: ScramUser | None = None
        self._messages = b""
        self._binding = b""
        self._nonce = ""
        self.complete = False
        self.name = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def evaluate(self, response: bytes) -> bytes:
        try:
            text = response.decode()
        except UnicodeDecodeError as error:
            raise SaslFailure from error
        if self.complete:
            raise SaslFailure
        return self._final(text, self._user) if self._user is not None else self._first(text)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None or match["bare"].startswith("m="):
            raise SaslFailure
        name = _unescaped(match["name"])
        extensions = dict(part.split("=", 1) for part in (match["extensions"] or "").split(",") if "=" in part)
        by_token = extensions.get("tokenauth", "").lower() == "true"
        check_authorization_id(_unescaped(match["authzid"] or ""), name)
        user = self._find(name, by_token)
        if user is None or user.credential.iterations < MIN_ITERATIONS:
            raise SaslFailure
        self._user = user
        self.token_authenticated = by_token
        self._nonce = match["nonce"] + self._new_nonce()
        self._binding = text[: match.start("bare")].encode()
        credential = user.credential
        server_first = f"r={self._nonce},s={_b64(credential.salt)},i={credential.iterations}".encode()
        self._messages = match["bare"].encode() + b"," + server_first + b","
        return server_first

    def _final(self, text: str, user: ScramUser) -> bytes:
        match = _FINAL.fullmatch(text)
        if match is None or not hmac.compare_digest(match["nonce"], self._nonce):
            raise SaslFailure
        try:
            proof = base64.b64decode(match["proof"], validate=True)
            binding = base64.b64decode(match["binding"], validate=True)
        except binascii.Error as error:
            raise SaslFailure from error
        # Kafka's own client sends "n,," whatever its first message began with.
        if binding not in (self._binding, _NO_CHANNEL_BINDING):
            raise SaslFailure
        credential = user.credential
        auth_message = self._messages + match["bare"].encode()
        signature = hmac.digest(credential.stored_key, auth_message, self._digest)
        if len(proof) != len(signature):
            raise SaslFailure
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key):
            raise SaslFailure
        self.name = user.name
        self.expires_at_ms = user.expires_at_ms
        self.complete = True
        return b"v=" + _b64(hmac.digest(credential.server_key, auth_message, self._digest)).encode()


class ScramClient:
    """The client's side, for this node's own logins. `respond` raises SaslFailure if the server does not prove its
    identity.
    """

    def __init__(self, mechanism: str, name: str, password: str, nonce: str, *, token: bool = False) -> None:
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}" + (
            ",tokenauth=true" if token else ""
        )
        self._server_signature: bytes | None = None
        self.complete = False

    def first(self) -> bytes:
        return _NO_CHANNEL_BINDING + self._bare.encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """The next message, or None when the exchange is over."""
        if self._server_signature is not None:
            expected = b"v=" + _b64(self._server_signature).encode()
            if not hmac.compare_digest(challenge, expected):
                raise SaslFailure("the server could not prove that it has the password")
            self.complete = True
            return None
        match = _SERVER_FIRST.fullmatch(challenge.decode("utf-8", "replace"))
        if match is None or not match["nonce"].startswith(self._nonce) or len(match["nonce"]) == len(self._nonce):
            raise SaslFailure("the server's first SCRAM message cannot be used")
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS * 64:
            raise SaslFailure(f"the server requires {iterations} iterations")
        salted = salted_password(self._mechanism, self._password, base64.b64decode(match["salt"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        bare = f"c={_b64(_NO_CHANNEL_BINDING)},r={match['nonce']}"
        message = f"{self._bare},{challenge.decode()},{bare}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._server_signature = hmac.digest(server_key, message, self._digest)
        return f"{bare},p={_b64(proof)}".encode()


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
