"""An SSLContext from Kafka's ssl.* properties: inline PEM, and stores as PEM, PKCS12 or JKS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from ottla.client.errors import BadSettings
from ottla.client.settings import VERIFICATION
from ottla.security.java_keystores import is_pem, load_key_store
from ottla.security.key_files import load_chain
from ottla.security.tls_level import LEVEL_SETTING, UNCHANGED, set_security_level, weakness


def tls_context(ssl_settings: Mapping[str, str]) -> ssl.SSLContext:
    """`ssl_settings` has the ssl.* properties without their prefix, and `ottla.ssl.security.level`; BadSettings when a store
    cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = ssl_settings.get("endpoint.identification.algorithm", "https").lower() == "https"
    if ssl_settings.get(VERIFICATION, "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        set_security_level(context, int(ssl_settings.get(LEVEL_SETTING, UNCHANGED)))
        _trust(context, ssl_settings)
        _identity(context, ssl_settings)
    except (OSError, ValueError, ssl.SSLError) as reason:
        raise BadSettings(f"Failed to load SSL keystore or truststore: {weakness(reason) or reason}") from reason
    return context


def _trust(context: ssl.SSLContext, ssl_settings: Mapping[str, str]) -> None:
    if inline := ssl_settings.get("truststore.certificates"):
        context.load_verify_locations(cadata=inline)
    elif path := ssl_settings.get("truststore.location"):
        if ssl_settings.get("truststore.type", "JKS").upper() == "PEM" or is_pem(path):
            context.load_verify_locations(cafile=path)
        else:
            context.load_verify_locations(
                cadata=load_key_store(path, ssl_settings.get("truststore.password")).trusted_pem()
            )
    elif location := ssl_settings.get("ca.location"):  # librdkafka's name for the same
        context.load_verify_locations(cafile=location)
    else:
        context.load_default_certs()


def _identity(context: ssl.SSLContext, ssl_settings: Mapping[str, str]) -> None:
    password = ssl_settings.get("key.password") or ssl_settings.get("keystore.password")
    chain, key = ssl_settings.get("keystore.certificate.chain"), ssl_settings.get("keystore.key")
    if chain and key:
        load_chain(context, f"{key}\n{chain}".encode(), password)
    elif path := ssl_settings.get("keystore.location"):
        if ssl_settings.get("keystore.type", "JKS").upper() == "PEM" or is_pem(path):
            context.load_cert_chain(path, password=password)
        else:
            store = load_key_store(path, ssl_settings.get("keystore.password"), ssl_settings.get("key.password"))
            load_chain(context, "".join(store.identity_pem()).encode(), None)
    elif path := ssl_settings.get("certificate.location"):
        context.load_cert_chain(path, ssl_settings.get("key.location"), password)
