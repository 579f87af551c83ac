"""TLS contexts from Kafka's ssl.* settings: PEM, PKCS12 and JKS stores, TLS 1.2 and 1.3, client certificates.

`TlsSource` keeps one context and makes a new context when the settings or their files change. Open connections keep
their context. If a reload fails, it is reported once and the old context stays. `key_files.py` hands private keys to
the TLS library.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.config.broker.config import BrokerConfig
from ottla.security.java_keystores import MAX_STORE_BYTES, JavaKeyStore, load_key_store
from ottla.security.key_files import load_chain
from ottla.security.principals import PrincipalRuleError, distinguished_name, principal_mapper
from ottla.security.tls_level import set_security_level, weakness

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_CHECK_EVERY_MS = 1000.0
_SCRATCH_BYTES = 64 * 1024


class TlsError(ValueError):
    """The settings or the files give no usable context; the message has no secret in it."""


class _Stores(NamedTuple):
    keys: bytes | None
    """Private key and certificate chain, PEM."""
    password: str | None
    trusted: str | None


def server_context(config: BrokerConfig, *, client_auth: bool) -> ssl.SSLContext:
    """The context of a listener; `config` already has the listener's own settings (`config.for_listener`)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, config, _stores(config), key_needed=True)
    verify_mode = _CLIENT_AUTH[config.ssl_client_auth] if client_auth else ssl.CERT_NONE
    if verify_mode != ssl.CERT_NONE:
        context.verify_mode = verify_mode
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def client_context(config: BrokerConfig) -> ssl.SSLContext:
    """For this node's own connections to a listener; `config` is that listener's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stores = _stores(config)
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    _configure(context, config, stores, key_needed=False)
    if stores.trusted is None:
        context.load_default_certs()
    return context


def _configure(context: ssl.SSLContext, config: BrokerConfig, stores: _Stores, *, key_needed: bool) -> None:
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols if name in _VERSIONS]
    if not versions:
        raise TlsError("ssl.enabled.protocols has neither TLSv1.2 nor TLSv1.3; older versions are not supported")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    old = [openssl_cipher(name) for name in config.ssl_cipher_suites if "_WITH_" in name]
    try:
        if old:
            context.set_ciphers(":".join(old))
        set_security_level(context, config.ottla_ssl_security_level)
        if stores.keys is not None:
            _load_chain(context, stores.keys, stores.password)
        elif key_needed:
            raise TlsError("there is no key: set ssl.keystore.location, or ssl.keystore.key and .certificate.chain")
        if stores.trusted is not None:
            context.load_verify_locations(cadata=stores.trusted)
    except ssl.SSLError as error:
        reason = weakness(error) or error.reason or "wrong password or format"
        raise TlsError(f"the key or trust store cannot be used: {reason}") from None


def openssl_cipher(java_name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 -> ECDHE-RSA-AES128-GCM-SHA256."""
    name = java_name.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES")
    return name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_", "-")


def _stores(config: BrokerConfig) -> _Stores:
    return _Stores(_key_pem(config), config.ssl_key_password, _trusted_pem(config))


def _key_pem(config: BrokerConfig) -> bytes | None:
    kind = config.ssl_keystore_type.upper()
    if config.ssl_keystore_key is not None or config.ssl_keystore_certificate_chain is not None:
        if kind != "PEM":
            raise TlsError("ssl.keystore.key and ssl.keystore.certificate.chain need ssl.keystore.type=PEM")
        return f"{config.ssl_keystore_key or ''}\n{config.ssl_keystore_certificate_chain or ''}\n".encode()
    if config.ssl_keystore_location is None:
        return None
    path = config.ssl_keystore_location
    if kind == "PEM":
        return _read("ssl.keystore.location", path)
    store = _store("ssl.keystore", kind, path, config.ssl_keystore_password, config.ssl_key_password)
    try:
        return "".join(store.identity_pem()).encode()
    except ValueError as error:
        raise TlsError(f"ssl.keystore.location: {error}") from error


def _trusted_pem(config: BrokerConfig) -> str | None:
    kind = config.ssl_truststore_type.upper()
    if config.ssl_truststore_certificates is not None:
        return config.ssl_truststore_certificates
    if config.ssl_truststore_location is None:
        return None
    path = config.ssl_truststore_location
    if kind == "PEM":
        return _read("ssl.truststore.location", path).decode("ascii", "replace")
    return _store("ssl.truststore", kind, path, config.ssl_truststore_password, None).trusted_pem()


def _read(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_STORE_BYTES)
    except OSError as error:
        raise TlsError(f"{name}={path}: {error.strerror}") from error


def _store(name: str, kind: str, path: str, password: str | None, key_password: str | None) -> JavaKeyStore:
    if kind not in ("JKS", "PKCS12"):
        raise TlsError(f"{name}.type={kind} cannot be read here; use PEM, PKCS12 or JKS")
    try:
        return load_key_store(path, password, key_password)
    except OSError as error:
        raise TlsError(f"{name}.location={path}: {error.strerror}") from error
    except ValueError:
        raise TlsError(f"{name}.location: neither JKS nor PKCS12, damaged, or the password is wrong") from None


def _load_chain(context: ssl.SSLContext, pem: bytes, password: str | None) -> None:
    """Without a password the library must not ask on the terminal."""
    try:
        load_chain(context, pem, password or "")
    except (OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError):
            raise
        raise TlsError("the key store cannot be used: wrong password or format") from None


class TlsSource:
    """The current context of one listener."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        client_auth: bool,
        monotonic_ms: Callable[[], float],
        on_problem: Callable[[str], None],
    ) -> None:
        self._config = config
        self._client_auth = client_auth
        self._monotonic_ms = monotonic_ms
        self._on_problem = on_problem
        self._stamp = _files(config)
        self._checked = monotonic_ms()
        self._context = server_context(config, client_auth=client_auth)
        self._identity = certificate_identity(_key_pem(config))
        self.mapper = _mapper(config)
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        """The receive buffer that the listener's connections share: each hands its bytes to the library at once."""

    def context(self) -> ssl.SSLContext:
        now = self._monotonic_ms()
        if now - self._checked > _CHECK_EVERY_MS:
            self._checked = now
            if _files(self._config) != self._stamp:
                self._reload(self._config)
        return self._context

    def follow(self, config: BrokerConfig) -> None:
        """The settings may have changed; an altered value is reloaded even where it is the same text (KAFKA-14136)."""
        self._reload(config)

    def _reload(self, config: BrokerConfig) -> None:
        stamp = _files(config)  # before the files are read: a change meanwhile is found at the next check
        if config is self._config:
            self._stamp = stamp
        try:
            identity = certificate_identity(_key_pem(config))
            self._check_identity(config, identity)
            context = server_context(config, client_auth=self._client_auth)
            mapper = _mapper(config)
        except (TlsError, ValueError) as error:
            self._on_problem(str(error))
            return
        self._config, self._context, self._identity, self.mapper = config, context, identity, mapper
        self._stamp = stamp

    def _check_identity(self, config: BrokerConfig, identity: tuple[str, frozenset[str]] | None) -> None:
        """A new certificate must be for the same server, unless the settings allow a different one."""
        if self._identity is None or identity is None:
            return
        if identity[0] != self._identity[0] and not config.ssl_allow_dn_changes:
            raise TlsError("the new certificate has a different DistinguishedName; ssl.allow.dn.changes is false")
        if not self._identity[1] <= identity[1] and not config.ssl_allow_san_changes:
            raise TlsError("the new certificate lacks SubjectAltNames of the old; ssl.allow.san.changes is false")


def _files(config: BrokerConfig) -> tuple[tuple[int, int] | None, ...]:
    return tuple(_stamp(path) for path in (config.ssl_keystore_location, config.ssl_truststore_location))


def _stamp(path: str | None) -> tuple[int, int] | None:
    try:
        status = os.stat(path) if path is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_mtime_ns, status.st_size)


def _mapper(config: BrokerConfig) -> Callable[[str], str]:
    try:
        return principal_mapper(config.ssl_principal_mapping_rules)
    except PrincipalRuleError as error:
        raise TlsError(f"ssl.principal.mapping.rules: {error}") from error


def certificate_identity(pem: bytes | None) -> tuple[str, frozenset[str]] | None:
    """Subject and alternative names of the first certificate."""
    from cryptography import x509

    if pem is None:
        return None
    start = pem.find(b"-----BEGIN CERTIFICATE-----")
    if start < 0:
        raise TlsError("the key store holds no certificate")
    certificate = x509.load_pem_x509_certificate(pem[start:])
    return distinguished_name(certificate.subject), _alternative_names(certificate)


def _alternative_names(certificate: Certificate) -> frozenset[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)


def peer_name(der: bytes) -> str:
    """The distinguished name in a client's certificate."""
    from cryptography import x509

    return distinguished_name(x509.load_der_x509_certificate(der).subject)
