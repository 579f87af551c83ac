"""Private keys on a system without files in memory: what lies in the temporary file opens nothing."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.security.key_files import load_chain
from tests.security.secured import Certificates


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[bytes, int]]:
    """Content and mode of each file whose path the library gets."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[tuple[bytes, int]] = []
    load = ssl.SSLContext.load_cert_chain

    def look(self: ssl.SSLContext, path: str, *arguments: object, **named: object) -> None:
        seen.append((Path(path).read_bytes(), Path(path).stat().st_mode & 0o777))
        load(self, path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", look)
    return seen


def loaded(pem: bytes, password: str | None = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, pem, password)
    return context


def test_a_plain_key_is_encrypted_on_its_way(written: list[tuple[bytes, int]], tmp_path: Path) -> None:
    pem = Certificates(tmp_path / "ca").issue("server").read_bytes()
    loaded(pem)
    loaded(pem, "a password that the key does not need")
    assert len(written) == 2
    for text, mode in written:
        assert mode == 0o600
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in text
        assert b"BEGIN PRIVATE KEY" not in text
        assert b"BEGIN RSA PRIVATE KEY" not in text
        assert b"BEGIN EC PRIVATE KEY" not in text
        with pytest.raises(TypeError):
            load_pem_private_key(text, None)
    assert written[0] != written[1], "each has a password of its own"
    assert list(tmp_path.glob("*.pem")) == []


def test_an_encrypted_key_stays_as_it_is(written: list[tuple[bytes, int]], tmp_path: Path) -> None:
    pem = Certificates(tmp_path / "ca").issue("server").read_bytes()
    key = load_pem_private_key(pem, None)
    start = pem.index(b"-----BEGIN CERTIFICATE")
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")) + pem[start:]
    old = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret"))
    loaded(sealed, "secret")
    loaded(old + pem[start:], "secret")
    assert [text for text, _ in written] == [sealed, old + pem[start:]]
    for password in ("", "wrong"):
        with pytest.raises(OSError):
            loaded(sealed, password)
    assert list(tmp_path.glob("*.pem")) == []


@pytest.mark.parametrize(
    "text", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", b"no key here"]
)
def test_what_is_no_key_is_refused(written: list[tuple[bytes, int]], text: bytes, tmp_path: Path) -> None:
    with pytest.raises((ssl.SSLError, ValueError)):
        loaded(text)
    assert list(tmp_path.glob("*.pem")) == []


@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
    ],
    ids=["rsa", "ec", "ed25519"],
)
def test_every_kind_of_key(
    written: list[tuple[bytes, int]], key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
) -> None:
    loaded(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + self_signed(key))
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in written[0][0]


def self_signed(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    hashing = None if isinstance(key, ed25519.Ed25519PrivateKey) else SHA256()
    return builder.sign(key, hashing).public_bytes(Encoding.PEM)
