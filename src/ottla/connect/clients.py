"""Producers and consumers from Kafka's own setting names: what Java's clients take, librdkafka is given its way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.settings import jaas_options

_RENAMED = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "max.block.ms": None,
    "max.poll.records": None,
    "buffer.memory": None,
    "default.api.timeout.ms": None,
}
_JAVA_ONLY = (
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "ssl.truststore.type",
    "ssl.truststore.password", "ssl.keystore.type", "sasl.jaas.config", "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class", "interceptor.classes", "metric.reporters",
)  # fmt: skip
_CONSUMER_ONLY = (
    "group.",
    "auto.offset.reset",
    "isolation.level",
    "fetch.",
    "max.partition.fetch",
    "enable.auto.commit",
)


def librdkafka_settings(client: Mapping[str, str]) -> dict[str, Any]:
    """Settings for any librdkafka client."""
    found: dict[str, Any] = {"log_level": 3}
    for name, value in client.items():
        if name in _JAVA_ONLY:
            continue
        renamed = _RENAMED.get(name, name)
        if renamed is not None:
            found[renamed] = value
    if client.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    login = jaas_options(client.get("sasl.jaas.config", ""))
    if "username" in login:
        found["sasl.username"], found["sasl.password"] = login["username"], login.get("password", "")
    if str(found.get("ssl.keystore.location", "")).endswith(".pem"):
        location = found.pop("ssl.keystore.location")
        found["ssl.certificate.location"] = found["ssl.key.location"] = location
    return found


def producer_settings(client: Mapping[str, str]) -> dict[str, Any]:
    """An idempotent producer that chooses partitions as Java's does (murmur2 of the key)."""
    settings = {
        name: value for name, value in librdkafka_settings(client).items() if not name.startswith(_CONSUMER_ONLY)
    }
    defaults = {
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "queue.buffering.max.kbytes": 65_536,
    }
    return defaults | settings


def consumer_settings(client: Mapping[str, str], group_id: str) -> dict[str, Any]:
    defaults = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    return defaults | librdkafka_settings(client) | {"group.id": group_id}
