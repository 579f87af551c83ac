"""Properties of Kafka's Java clients as librdkafka's: same names where it has them, translated or left out where not."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from ottla.cli.kafka.options import Options
from ottla.client.settings import jaas_options, load_properties

_SAME = frozenset({
    "bootstrap.servers", "client.id", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
    "acks", "linger.ms", "batch.size", "compression.type", "retries", "retry.backoff.ms", "request.timeout.ms",
    "enable.idempotence", "transactional.id", "transaction.timeout.ms", "max.in.flight.requests.per.connection",
    "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "isolation.level", "session.timeout.ms",
    "heartbeat.interval.ms", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.bytes",
    "max.partition.fetch.bytes", "check.crcs", "client.rack", "metadata.max.age.ms", "security.protocol",
    "sasl.mechanism", "ssl.key.password", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
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
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
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


def librdkafka_config(properties: Mapping[str, str], *, producer: bool) -> dict[str, object]:
    """What librdkafka takes; names that belong to the other kind of client, or that it does not have, are dropped."""
    config: dict[str, object] = {}
    for name, value in properties.items():
        target = name if name in _SAME else _RENAMED.get(name)
        if target is None or target in (_CONSUMER if producer else _PRODUCER):
            continue
        config[target] = value
    _security(properties, config)
    config.setdefault("broker.address.family", "any")
    config["log_level"] = 0
    return config


def _security(properties: Mapping[str, str], config: dict[str, object]) -> None:
    if jaas := properties.get("sasl.jaas.config"):
        options = jaas_options(jaas)
        config["sasl.username"] = options.get("username", "")
        config["sasl.password"] = options.get("password", "")
    if location := properties.get("ssl.truststore.location"):
        config["ssl.ca.location"] = location
    if inline := properties.get("ssl.truststore.certificates"):
        config["ssl.ca.pem"] = inline
    if location := properties.get("ssl.keystore.location"):
        if location.endswith((".p12", ".pfx")) or properties.get("ssl.keystore.type", "").upper() == "PKCS12":
            config["ssl.keystore.location"] = location
            config["ssl.keystore.password"] = properties.get("ssl.keystore.password", "")
        else:
            config["ssl.certificate.location"] = config["ssl.key.location"] = location
    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    if chain and key:
        config["ssl.certificate.pem"], config["ssl.key.pem"] = chain, key
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        config["ssl.endpoint.identification.algorithm"] = "none"


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
            print(self._warning.format(old=self.old, new=self.new))

    def values(self, options: Options) -> list[str]:
        return options.values(self.new) or options.values(self.old)

    def value(self, options: Options) -> str | None:
        return options.value(self.new) if options.has(self.new) else options.value(self.old)


def merged_properties(options: Options, file: RenamedOption, pairs: RenamedOption) -> dict[str, str]:
    """The config file's properties, then those of the command line over them."""
    path = file.value(options)
    return {**(load_properties(path) if path else {}), **key_values(pairs.values(options))}


def warn_of(problem: object) -> None:
    print(f"WARN {problem}", file=sys.stderr)
