"""The client's side of SASL PLAIN, SCRAM (RFC 5802) and OAUTHBEARER: bytes in, bytes out, no socket.

A mechanism is a generator: it yields what to send and is sent what came back; it ends when the server has proved itself.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Generator, Mapping

from ottla.client.errors import AuthenticationFailed, BadSettings

Exchange = Generator[bytes, bytes, None]
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS, _MAX_ITERATIONS = 4096, 10_000_000


def exchange_for(mechanism: str, options: Mapping[str, str]) -> Exchange:
    """The exchange of a mechanism with the options of sasl.jaas.config; BadSettings when one is missing."""
    if mechanism == "OAUTHBEARER":
        return _oauthbearer(_option(options, "token", mechanism))
    user, password = _option(options, "username", mechanism), _option(options, "password", mechanism)
    if mechanism == "PLAIN":
        return _plain(user, password)
    if mechanism in _HASHES:
        token = options.get("tokenauth", "").lower() == "true"
        return _scram(_HASHES[mechanism], user, password, ",tokenauth=true" if token else "")
    raise BadSettings(f"Unsupported SASL mechanism {mechanism}")


def _option(options: Mapping[str, str], name: str, mechanism: str) -> str:
    if name not in options:
        raise BadSettings(f"sasl.jaas.config has no {name} for SASL mechanism {mechanism}")
    return options[name]


def _plain(user: str, password: str) -> Exchange:
    yield b"\0" + user.encode() + b"\0" + password.encode()


def _oauthbearer(token: str) -> Exchange:
    yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def _scram(algorithm: str, user: str, password: str, extensions: str) -> Exchange:
    nonce = base64.b64encode(os.urandom(24)).decode()
    name = user.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}{extensions}"
    server_first = (yield f"n,,{first_bare}".encode()).decode()
    fields = _fields(server_first)
    server_nonce, iterations = fields.get("r", ""), int(fields.get("i", "0"))
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise AuthenticationFailed("Invalid server nonce: it does not continue the client's")
    if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise AuthenticationFailed(f"Requested iterations {iterations} are outside what SCRAM allows")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(fields.get("s", "")), iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final_bare = f"c=biws,r={server_nonce}"
    message = f"{first_bare},{server_first},{final_bare}".encode()
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = _fields((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()).decode())
    if "e" in server_final:
        raise AuthenticationFailed(f"Authentication failed during SCRAM exchange: {server_final['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    if not hmac.compare_digest(expected, base64.b64decode(server_final.get("v", ""))):
        raise AuthenticationFailed("Invalid server signature in server final message")


def _fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
