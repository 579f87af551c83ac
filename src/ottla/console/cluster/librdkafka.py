"""Kafka's client settings in librdkafka's words: the same file serves the wire client and the readers of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SAME = ("security.protocol", "client.rack", "client.dns.lookup", "socket.connection.setup.timeout.ms")
_NAMES = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.key.password": "ssl.key.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "sasl.mechanism": "sasl.mechanism",
}
_PEM_STORE = {"ssl.key.location", "ssl.certificate.location"}


def librdkafka_settings(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, str]:
    made = {"bootstrap.servers": bootstrap_servers, "client.id": "ottla-console"}
    for name in _SAME:
        if name in properties:
            made[name] = properties[name]
    for name, theirs in _NAMES.items():
        if name in properties:
            made[theirs] = properties[name]
    if "ssl.keystore.location" in properties:  # a PEM file with key and certificates
        made.update(dict.fromkeys(_PEM_STORE, properties["ssl.keystore.location"]))
    if made.get("ssl.endpoint.identification.algorithm") == "":
        made["ssl.endpoint.identification.algorithm"] = "none"
    options = dict(_login(properties.get("sasl.jaas.config", "")))
    for name in ("username", "password"):
        if name in options:
            made[f"sasl.{name}"] = options[name]
    return made


def _login(jaas: str) -> list[tuple[str, str]]:
    return [(name, quoted or bare) for name, quoted, bare in re.findall(r'(\w+)\s*=\s*(?:"([^"]*)"|([^\s;]+))', jaas)]
