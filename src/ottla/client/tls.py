"""An SSLContext from Kafka's ssl.* properties: inline PEM, and stores as PEM, PKCS12 or JKS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from ottla.client.errors import BadSettings
from ottla.security.java_keystores import is_pem, load_key_store
from ottla.security.key_files import load_chain
from ottla.security.tls_level import LEVEL_SETTING, UNCHANGED, set_security_level, weakness


def tls_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """`given` has the ssl.* properties without their prefix, and `ottla.ssl.security.level`; BadSettings when a store
    cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = given.get("endpoint.identification.algorithm", "https").lower() == "https"
    try:
        set_security_level(context, int(given.get(LEVEL_SETTING, UNCHANGED)))
        _trust(context, given)
        _identity(context, given)
    except (OSError, ValueError, ssl.SSLError) as reason:
        raise BadSettings(f"Failed to load SSL keystore or truststore: {weakness(reason) or reason}") from reason
    return context


def _trust(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    if inline := given.get("truststore.certificates"):
        context.load_verify_locations(cadata=inline)
    elif path := given.get("truststore.location"):
        if given.get("truststore.type", "JKS").upper() == "PEM" or is_pem(path):
            context.load_verify_locations(cafile=path)
        else:
            context.load_verify_locations(cadata=load_key_store(path, given.get("truststore.password")).trusted_pem())
    elif location := given.get("ca.location"):  # librdkafka's name for the same
        context.load_verify_locations(cafile=location)
    else:
        context.load_default_certs()


def _identity(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    password = given.get("key.password") or given.get("keystore.password")
    chain, key = given.get("keystore.certificate.chain"), given.get("keystore.key")
    if chain and key:
        load_chain(context, f"{key}\n{chain}".encode(), password)
    elif path := given.get("keystore.location"):
        if given.get("keystore.type", "JKS").upper() == "PEM" or is_pem(path):
            context.load_cert_chain(path, password=password)
        else:
            store = load_key_store(path, given.get("keystore.password"), given.get("key.password"))
            load_chain(context, "".join(store.identity_pem()).encode(), None)
    elif path := given.get("certificate.location"):
        context.load_cert_chain(path, given.get("key.location"), password)
