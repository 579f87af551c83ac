"""An SSLContext from Kafka's ssl.* properties: PEM stores, inline PEM, and PKCS12 through cryptography."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ottla.client.errors import BadSettings


def tls_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """`given` has the ssl.* properties without their prefix; BadSettings when a store cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = given.get("endpoint.identification.algorithm", "https").lower() == "https"
    try:
        _trust(context, given)
        _identity(context, given)
    except (OSError, ValueError, ssl.SSLError) as reason:
        raise BadSettings(f"Failed to load SSL keystore or truststore: {reason}") from reason
    return context


def _trust(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    if inline := given.get("truststore.certificates"):
        context.load_verify_locations(cadata=inline)
    elif path := given.get("truststore.location"):
        if given.get("truststore.type", "JKS").upper() == "PEM" or _is_pem(path):
            context.load_verify_locations(cafile=path)
        else:
            for der in _pkcs12_certificates(path, given.get("truststore.password")):
                context.load_verify_locations(cadata=der)
    elif location := given.get("ca.location"):  # librdkafka's name for the same
        context.load_verify_locations(cafile=location)
    else:
        context.load_default_certs()


def _identity(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    password = given.get("key.password") or given.get("keystore.password")
    chain, key = given.get("keystore.certificate.chain"), given.get("keystore.key")
    if chain and key:
        _load_pem(context, f"{key}\n{chain}".encode(), password)
    elif path := given.get("keystore.location"):
        if given.get("keystore.type", "JKS").upper() == "PEM" or _is_pem(path):
            context.load_cert_chain(path, password=password)
        else:
            _load_pem(context, _pkcs12_pem(path, given.get("keystore.password")), None)
    elif path := given.get("certificate.location"):
        context.load_cert_chain(path, given.get("key.location"), password)


def _load_pem(context: ssl.SSLContext, pem: bytes, password: str | None) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # 0600, and gone when it is loaded
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _is_pem(path: str) -> bool:
    return b"-----BEGIN" in Path(path).read_bytes()[:65536]


def _pkcs12_certificates(path: str, password: str | None) -> list[bytes]:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    store = pkcs12.load_pkcs12(Path(path).read_bytes(), (password or "").encode())
    entries = [*([store.cert] if store.cert else []), *store.additional_certs]
    return [entry.certificate.public_bytes(Encoding.DER) for entry in entries]


def _pkcs12_pem(path: str, password: str | None) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    store = pkcs12.load_pkcs12(Path(path).read_bytes(), (password or "").encode())
    if store.key is None or store.cert is None:
        raise ValueError(f"{path} has no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    entries = [store.cert, *store.additional_certs]
    return key + b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries)
