"""Producers and consumers from Kafka's own setting names: what Java's clients take, librdkafka is given its way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.librdkafka import TRANSLATED, security_settings

_RENAMED = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
_JAVA_ONLY = frozenset({
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",
    "sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "interceptor.classes",
    "metric.reporters", "max.block.ms", "max.poll.records", "buffer.memory", "default.api.timeout.ms",
    "auto.include.jmx.reporter", "metadata.max.idle.ms", "exclude.internal.topics", "partition.assignment.strategy",
    "socket.connection.setup.timeout.max.ms", "transaction.two.phase.commit.enable", "security.providers",
    "ssl.enabled.protocols", "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "sasl.oauthbearer.clock.skew.seconds",
})  # fmt: skip
_JAVA_ONLY_KINDS = ("metrics.", "partitioner.", "sasl.login.", "sasl.kerberos.ticket.", "config.providers")
"""A Java client's own: settings that librdkafka has no word for and whose absence changes no record."""
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
    passed = {
        _RENAMED.get(name, name): value
        for name, value in client.items()
        if name not in _JAVA_ONLY | TRANSLATED and not name.startswith(_JAVA_ONLY_KINDS)
    }
    return {"log_level": 3} | passed | security_settings(client)


def quiet(client: Mapping[str, str]) -> dict[str, str]:
    """Without librdkafka's line for each failed attempt to connect: the caller reports that once."""
    return {"log_level": "2", **client}


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
        "message.max.bytes": 1_048_576,
    }
    # A record that is larger than the queue would wait for ever.
    largest_kb = int(settings.get("message.max.bytes", 0)) // 1024 + 1
    return defaults | {"queue.buffering.max.kbytes": max(65_536, largest_kb)} | settings


def consumer_settings(client: Mapping[str, str], group_id: str) -> dict[str, Any]:
    defaults = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    return defaults | librdkafka_settings(client) | {"group.id": group_id}
