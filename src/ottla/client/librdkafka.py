"""Kafka's client settings in librdkafka's words, and back: where a broker is, and how to get in. The one place for it.

The tools, the console and the connectors each choose which further settings they pass on; TLS and SASL are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.errors import BadSettings
from ottla.client.settings import jaas_options
from ottla.security.java_keystores import is_pem, load_key_store
from ottla.security.tls_level import LEVEL_SETTING

TRANSLATED = frozenset({
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.endpoint.identification.algorithm", "sasl.jaas.config",
    "sasl.mechanism", "security.protocol", LEVEL_SETTING,
})  # fmt: skip
"""Settings that only `security_settings` reads."""


def security_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """BadSettings when a store cannot be opened; a file that is not there is left for librdkafka to complain of."""
    made = {name: properties[name] for name in ("security.protocol", "sasl.mechanism") if name in properties}
    if (algorithm := properties.get("ssl.endpoint.identification.algorithm")) is not None:
        made["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    if (level := properties.get(LEVEL_SETTING)) is not None:
        made["ssl.cipher.suites"] = f"DEFAULT:@SECLEVEL={level}"
    login = jaas_options(properties.get("sasl.jaas.config", ""))
    for name in ("username", "password"):
        if name in login:
            made[f"sasl.{name}"] = login[name]
    try:
        _trust(properties, made)
        _identity(properties, made)
    except ValueError as reason:
        raise BadSettings(f"Failed to load SSL keystore or truststore: {reason}") from reason
    return made


_KAFKA_NAMES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""librdkafka's names that Kafka's Java clients spell differently, with the same values."""


def java_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Librdkafka's settings in the words of Kafka's Java clients, for our own client. Java's names win over librdkafka's."""
    made = dict(properties)
    for name, java_name in _KAFKA_NAMES.items():
        if name in made:
            made.setdefault(java_name, made.pop(name))
    if "sasl.username" in made and "sasl.jaas.config" not in made:
        login = {"username": made["sasl.username"], "password": made.get("sasl.password", "")}
        options = " ".join(f'{name}="{_escaped(text)}"' for name, text in login.items())
        made["sasl.jaas.config"] = f"{_LOGIN_MODULE} required {options};"
    return made


_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
"""Our own client reads only the options of a login module, whatever its name."""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _trust(properties: Mapping[str, str], made: dict[str, str]) -> None:
    if inline := properties.get("ssl.truststore.certificates"):
        made["ssl.ca.pem"] = inline
    elif location := properties.get("ssl.truststore.location"):
        if _for_librdkafka(location):
            made["ssl.ca.location"] = location
        else:
            made["ssl.ca.pem"] = load_key_store(location, properties.get("ssl.truststore.password")).trusted_pem()


def _identity(properties: Mapping[str, str], made: dict[str, str]) -> None:
    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    password = properties.get("ssl.key.password")
    if password is not None:
        made["ssl.key.password"] = password
    if chain and key:
        made["ssl.certificate.pem"], made["ssl.key.pem"] = chain, key
    elif location := properties.get("ssl.keystore.location"):
        if _for_librdkafka(location):
            made["ssl.certificate.location"] = made["ssl.key.location"] = location
        else:
            store = load_key_store(location, properties.get("ssl.keystore.password"), password)
            made["ssl.key.pem"], made["ssl.certificate.pem"] = store.identity_pem()
            made.pop("ssl.key.password", None)  # the key is open now


def _for_librdkafka(location: str) -> bool:
    try:
        return is_pem(location)
    except OSError:
        return True
