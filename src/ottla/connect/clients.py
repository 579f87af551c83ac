"""Producers and consumers from Kafka's own setting names: what Java's clients take, librdkafka is given its way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.librdkafka import TRANSLATED, security_settings

_JAVA_ONLY = frozenset({
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",
    "sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "interceptor.classes",
    "metric.reporters", "max.block.ms", "max.poll.records", "buffer.memory", "default.api.timeout.ms",
})  # fmt: skip
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
    passed = {name: value for name, value in client.items() if name not in _JAVA_ONLY | TRANSLATED}
    return {"log_level": 3} | passed | security_settings(client)


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
