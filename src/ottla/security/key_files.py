"""A private key and its certificates on their way into a TLS context.

The TLS library takes keys only by a path. Where the system has files in memory, the path leads into the memory of this
process. Elsewhere (macOS) the path leads to a temporary file with the encrypted key. Its password exists only in this
process and only for this call. So a copy of that file, left by a crash or in a backup, is useless.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile

from ottla.system.files import memory_file

_PRIVATE_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL)
_PASSWORD_BYTES = 32


def load_chain(context: ssl.SSLContext, pem: bytes, password: str | None) -> None:
    """`pem` holds the key and the certificate chain. Raises ValueError or ssl.SSLError if they cannot be used. Without
    a password (None) the library asks on the terminal for the password of an encrypted key.
    """
    with memory_file(pem) as path:
        if path is not None:
            context.load_cert_chain(path, password=password)
            return
    sealed, own_password = _sealed(pem)
    with tempfile.NamedTemporaryFile(prefix="ottla-", suffix=".pem") as file:  # mode 0600
        file.write(sealed)
        file.flush()
        context.load_cert_chain(file.name, password=password if own_password is None else own_password)


def _sealed(pem: bytes) -> tuple[bytes, str | None]:
    """The text with every private key encrypted, and the password; None when they were encrypted before."""
    password = os.urandom(_PASSWORD_BYTES).hex()
    if all(b"ENCRYPTED" in key_match[0] for key_match in _PRIVATE_KEY.finditer(pem)):
        return pem, None
    return _PRIVATE_KEY.sub(lambda key_match: _encrypted(key_match[0], password), pem), password


def _encrypted(key: bytes, password: str) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        loaded = serialization.load_pem_private_key(key, None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"the private key cannot be read: {error}") from error
    encryption = serialization.BestAvailableEncryption(password.encode())
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
