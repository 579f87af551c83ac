"""Java's key and trust stores as PEM: PEM itself, PKCS12 (through cryptography) and JKS, recognized by their first
bytes.

Raises ValueError with one line for a store that is damaged, has a wrong password or has no key. Nothing is written
anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_JKS = b"\xfe\xed\xfe\xed"
_PHRASE = b"Mighty Aphrodite"  # Sun's own salt of the integrity digest
_DIGEST = 20
_PRIVATE, _TRUSTED = 1, 2
MAX_STORE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaKeyStore:
    certificates: tuple[bytes, ...]
    """Trusted certificates, DER."""
    key: bytes | None = None
    """The private key, PKCS8 in PEM without a password."""
    chain: tuple[bytes, ...] = ()
    """The key's certificates, its own first, DER."""

    def trusted_pem(self) -> str:
        return "".join(map(_pem, (*self.certificates, *self.chain)))

    def identity_pem(self) -> tuple[str, str]:
        """The key and its certificates."""
        if self.key is None:
            raise ValueError("the key store has no private key")
        return self.key.decode(), "".join(map(_pem, self.chain))


def is_pem(path: str) -> bool:
    with Path(path).open("rb") as file:
        return b"-----BEGIN" in file.read(65536)


def load_key_store(path: str, password: str | None, key_password: str | None = None) -> JavaKeyStore:
    """A JKS or PKCS12 file; OSError when it cannot be read."""
    with Path(path).open("rb") as file:
        data = file.read(MAX_STORE_BYTES + 1)
    if len(data) > MAX_STORE_BYTES:
        raise ValueError(f"{path} is too large for a key store ({MAX_STORE_BYTES} bytes)")
    try:
        if data.startswith(_JKS):
            return _jks(data, password, key_password or password)
        return _pkcs12(data, password)
    except (ValueError, struct.error, IndexError) as reason:
        raise ValueError(f"{path}: {reason}") from reason


def _pem(der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"


def _pkcs12(data: bytes, password: str | None) -> JavaKeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    store = pkcs12.load_pkcs12(data, (password or "").encode())
    additional_certificates = tuple(entry.certificate.public_bytes(Encoding.DER) for entry in store.additional_certs)
    if store.key is None or store.cert is None:
        return JavaKeyStore(certificates=additional_certificates)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return JavaKeyStore(
        certificates=(), key=key, chain=(store.cert.certificate.public_bytes(Encoding.DER), *additional_certificates)
    )


def _jks(data: bytes, password: str | None, key_password: str | None) -> JavaKeyStore:
    """Sun's format: entries, then a SHA-1 over the password and everything before it."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if password is not None and hashlib.sha1(_utf16(password) + _PHRASE + body).digest() != digest:  # noqa: S324 - the format's
        raise ValueError("the store was changed, or its password is wrong")
    reader = _Reader(body)
    version, count = struct.unpack(">2I", reader.take(12)[4:])
    if version not in {1, 2}:
        raise ValueError(f"JKS version {version} is not known")
    certificates: list[bytes] = []
    key: bytes | None = None
    chain: tuple[bytes, ...] = ()
    for _ in range(count):
        (tag,) = struct.unpack(">I", reader.take(4))
        reader.text()  # the alias
        reader.take(8)  # when it was made
        if tag == _TRUSTED:
            certificates.append(reader.certificate(version))
        elif tag == _PRIVATE:
            locked = reader.sized()
            key_chain = tuple(reader.certificate(version) for _ in range(reader.count()))
            if key is None:
                key, chain = _unlocked(locked, key_password or ""), key_chain
        else:
            raise ValueError(f"an entry of kind {tag} is not known")
    return JavaKeyStore(certificates=tuple(certificates), key=key, chain=chain)


class _Reader:
    """Java's DataInput."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError("the store ends in the middle of an entry")
        self._at += length
        return self._data[self._at - length : self._at]

    def count(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def sized(self) -> bytes:
        return self.take(self.count())

    def text(self) -> str:
        (length,) = struct.unpack(">H", self.take(2))
        return self.take(length).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()  # X.509
        return self.sized()


def _unlocked(wrapped: bytes, password: str) -> bytes:
    """Sun's key protector: the key XOR a chain of SHA-1 digests that starts at a salt, then a digest to check it by."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_der_private_key,
    )

    data = list(_der_values(next(_der_values(wrapped))))[-1]  # SEQUENCE {algorithm, OCTET STRING}
    salt, locked, check = data[:_DIGEST], data[_DIGEST:-_DIGEST], data[-_DIGEST:]
    secret = _utf16(password)
    stream = b""
    link = salt
    while len(stream) < len(locked):
        link = hashlib.sha1(secret + link).digest()  # noqa: S324 - the format's
        stream += link
    plain = bytes(locked_byte ^ other for locked_byte, other in zip(locked, stream, strict=False))
    if hashlib.sha1(secret + plain).digest() != check:  # noqa: S324 - the format's
        raise ValueError("the password of the key is wrong (ssl.key.password)")
    key = load_der_private_key(plain, None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _der_values(data: bytes) -> Iterator[bytes]:
    """The contents of consecutive DER values."""
    at = 0
    while at < len(data):
        length = data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("the private key is damaged")
        yield data[at : at + length]
        at += length


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
