"""The certificates of `ottla up --secure`: an authority of this folder alone, and one certificate for its servers.

Private keys never leave the folder, in files that only their owner reads. The authority lasts ten years. The certificate of
the servers is made again at a start: 30 days before its end, or for a new name of the machine.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NODE_NAME = "ottla-node"
"""The common name of the servers: on the controller's listener a node logs in with its certificate."""
_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 825
"""The longest life of a certificate that macOS accepts."""
_RENEW_DAYS = 30
_CLOCK_SLACK = timedelta(hours=1)


def write_private(path: Path, content: bytes) -> None:
    """The whole file or none, also after a power cut; for its owner only."""
    partial = path.with_name(path.name + ".new")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)


def prepare_certificates(authority: Path, authority_key: Path, server: Path, hosts: Sequence[str]) -> None:
    """Writes the missing files; `server` has the key and the chain.

    Clients have copies of `authority`, so that file is never made again, also without its key. A certificate of a different
    authority is the operator's. Raises ValueError if the certificate must be made and the key is missing or of no use.
    """
    if not authority.exists():
        server.unlink(missing_ok=True)
        key, certificate = _authority()
        write_private(authority_key, _pem(key))
        write_private(authority, certificate.public_bytes(Encoding.PEM))
    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    names = _server_names(hosts)
    if server.exists():
        present = x509.load_pem_x509_certificate(server.read_bytes())
        present_names = _names_of(present)
        if present.issuer != issuer.subject or (_lasts(present) and set(names) <= set(present_names)):
            return
        names = list(dict.fromkeys([*present_names, *names]))
    key, certificate = _server(issuer, _issuer_key(issuer, authority_key), names)
    write_private(server, _pem(key) + certificate.public_bytes(Encoding.PEM))


def _issuer_key(issuer: x509.Certificate, authority_key: Path) -> ec.EllipticCurvePrivateKey:
    if not authority_key.exists():
        raise ValueError(
            f"a certificate must be made, and {authority_key} is missing: put the file back for this start"
        )
    key = load_pem_private_key(authority_key.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != issuer.public_key():
        raise ValueError(f"{authority_key} is not the key of the authority")
    return key


def _names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _lasts(certificate: x509.Certificate) -> bool:
    return certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=_RENEW_DAYS)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Ottla authority of {socket.gethostname()}"[:64])
    builder = _builder(name, name, key.public_key(), _AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return key, builder.add_extension(_usage(signs_certificates=True), critical=True).sign(key, SHA256())


def _server(
    issuer: x509.Certificate, issuer_key: ec.EllipticCurvePrivateKey, names: list[x509.GeneralName]
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        _builder(_name(NODE_NAME), issuer.subject, key.public_key(), _SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer_key, SHA256())
    )
    return key, certificate


def _server_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Everything by which a client may call a server of this machine."""
    names: list[x509.GeneralName] = []
    for text in dict.fromkeys([*hosts, "localhost", socket.gethostname(), "127.0.0.1", "::1"]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(text)))
        except ValueError:
            names.append(x509.DNSName(text))
    return names
