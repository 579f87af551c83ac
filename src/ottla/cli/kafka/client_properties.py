"""Properties of Kafka's Java clients as librdkafka's, for the tools: same names where it has them, left out where not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.kafka.admin import ClientNotMade, check_resolvable, command_properties_of
from ottla.cli.kafka.options import Options
from ottla.client.errors import BadSettings
from ottla.client.librdkafka import security_settings
from ottla.client.settings import parse_addresses

_SAME = frozenset({
    "bootstrap.servers", "client.id", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
    "acks", "linger.ms", "batch.size", "compression.type", "retries", "retry.backoff.ms", "request.timeout.ms",
    "enable.idempotence", "transactional.id", "transaction.timeout.ms", "max.in.flight.requests.per.connection",
    "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "isolation.level", "session.timeout.ms",
    "heartbeat.interval.ms", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.bytes",
    "max.partition.fetch.bytes", "check.crcs", "client.rack", "metadata.max.age.ms",
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    "allow.auto.create.topics", "connections.max.idle.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
    "enable.ssl.certificate.verification", "compression.level", "broker.address.family",
})  # fmt: skip
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "delivery.timeout.ms": "message.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
_PRODUCER = {
    "acks", "linger.ms", "batch.size", "compression.type", "retries", "enable.idempotence", "transactional.id",
    "transaction.timeout.ms", "max.in.flight.requests.per.connection", "message.timeout.ms", "request.timeout.ms",
    "compression.level", "retry.backoff.ms",
}  # fmt: skip
_CONSUMER = {
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "auto.offset.reset",
    "enable.auto.commit", "auto.commit.interval.ms", "isolation.level", "session.timeout.ms",
    "heartbeat.interval.ms", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes",
    "check.crcs", "fetch.wait.max.ms", "allow.auto.create.topics",
}  # fmt: skip


_LONGS = {
    "retry.backoff.ms", "linger.ms", "max.block.ms", "buffer.memory", "metadata.max.age.ms", "connections.max.idle.ms",
    "reconnect.backoff.ms", "reconnect.backoff.max.ms", "socket.connection.setup.timeout.ms",
}  # fmt: skip
_INTS = {
    "request.timeout.ms", "default.api.timeout.ms", "batch.size", "retries", "transaction.timeout.ms",
    "delivery.timeout.ms", "max.request.size", "max.in.flight.requests.per.connection", "auto.commit.interval.ms",
    "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records", "fetch.min.bytes",
    "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "send.buffer.bytes", "receive.buffer.bytes",
}  # fmt: skip


def check_numbers(properties: Mapping[str, str]) -> None:
    """ClientNotMade in Kafka's words for a setting that is no number; librdkafka has other ones, or does not look."""
    for name, value in properties.items():
        bits = 63 if name in _LONGS else 31 if name in _INTS else 0
        if bits and not (re.fullmatch(r"\s*[-+]?\d+\s*", value) and -(1 << bits) <= int(value) < 1 << bits):
            kind = "LONG" if bits > 31 else "INT"
            raise ClientNotMade(f"Invalid value {value} for configuration {name}: Not a number of type {kind}")


def librdkafka_config(properties: Mapping[str, str], *, producer: bool) -> dict[str, object]:
    """What librdkafka takes; names that belong to the other kind of client, or that it does not have, are dropped."""
    config: dict[str, object] = {}
    for name, value in properties.items():
        target = name if name in _SAME else _RENAMED.get(name)
        if target is None or target in (_CONSUMER if producer else _PRODUCER):
            continue
        config[target] = value
    config |= security_settings(properties)
    config.setdefault("broker.address.family", "any")
    config["log_level"] = 0
    return config


def made_client(properties: Mapping[str, str], *, producer: bool, **more: Any) -> Any:
    """A Producer or Consumer. Raises ClientNotMade, with the error text of Kafka's own clients, for wrong settings."""
    from confluent_kafka import Consumer, KafkaException, Producer

    kind = "producer" if producer else "consumer"
    names = {name.replace("__", "."): value for name, value in more.items()}
    check_numbers(properties)
    if not producer and not properties.get("group.id", "any").strip():  # librdkafka aborts the process
        raise ClientNotMade("The configured group.id should not be an empty string or whitespace.")
    try:
        check_resolvable(parse_addresses(properties.get("bootstrap.servers", "")))
        config = {**librdkafka_config(properties, producer=producer), **names}
        return Producer(config) if producer else Consumer(config)
    except BadSettings as reason:
        raise ClientNotMade(f"Failed to construct kafka {kind}") from reason
    except KafkaException as reason:
        words = str(reason.args[0].str())
        if match := re.match(r'Invalid value "(.*)" for configuration property "(.*)"', words):
            words = f"Invalid value {match[1]} for configuration {match[2]}"
        raise ClientNotMade(words) from reason


def next_batch(consumer: Any, limit: int, wait_s: float) -> list[Any]:
    """What is there now, or after a wait; a waiting consume() cannot be interrupted cleanly in confluent-kafka."""
    batch: list[Any] = consumer.consume(limit, 0)
    if not batch and (first := consumer.poll(wait_s)) is not None:
        batch = [first, *(consumer.consume(limit - 1, 0) if limit > 1 else ())]
    return batch


def key_values(pairs: Sequence[str]) -> dict[str, str]:
    """`a=b` pairs; a missing value is empty, as Kafka's tools take it."""
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


class RenamedOption:
    """An option that KIP-1147 renamed: both spellings work, the old one with a warning, not both at once."""

    def __init__(self, new: str, old: str, warning: str) -> None:
        self.new, self.old, self._warning = new, old, warning

    def check(self, options: Options) -> None:
        if options.has(self.new) and options.has(self.old):
            first, second = (self.old, self.new) if self.old.startswith("consumer") else (self.new, self.old)
            options.usage(f"Options --{first} and --{second} cannot be specified together.")
        if options.has(self.old):
            print(self._warning.format(old=self.old, new=self.new), flush=True)

    def values(self, options: Options) -> list[str]:
        return options.values(self.new) or options.values(self.old)

    def value(self, options: Options) -> str | None:
        return options.value(self.new) if options.has(self.new) else options.value(self.old)


def merged_properties(options: Options, file: RenamedOption, pairs: RenamedOption) -> dict[str, str]:
    """The config file's properties, then those of the command line over them."""
    path = file.value(options)
    return {**command_properties_of(path), **key_values(pairs.values(options))}
