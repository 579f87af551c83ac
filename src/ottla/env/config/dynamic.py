"""Dynamic broker settings: which names may change without a restart, for one broker or for all of them.

`validate_dynamic_update` takes the full layer as it would be after the change and raises KafkaError(INVALID_REQUEST)
with Kafka's text; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.model.errors import ErrorCode, KafkaError

from .broker.config import BrokerConfig, listener_base
from .cross import cross_problems
from .settings import PER_BROKER, READ_ONLY
from .values import BadValue, parse

PER_LISTENER_SECURITY: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""May change only under a listener's prefix."""

CLUSTER_LISTENER_SETTINGS: Final = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})
"""Listener-prefixed settings that may also be set for the whole cluster."""

THREAD_COUNTS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
FOLLOWS_RETENTION: Final = -2


def validate_dynamic_update(config: BrokerConfig, layer: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """The configuration as it would be with `layer` in place of the broker's or the cluster's dynamic settings."""
    validate_dynamic_names(layer, per_broker=per_broker)
    if per_broker:
        changed = config.with_dynamic(cluster=config.layers.cluster, broker=layer)
    else:
        changed = config.with_dynamic(cluster=layer, broker=config.layers.broker)
    for problem in cross_problems(changed):
        raise _refused(problem.kafka_message)
    for why in (*_thread_steps(config, changed), *_local_retention(changed)):
        raise _refused(
            f"Invalid value org.apache.kafka.common.config.ConfigException: {why} for configuration Invalid dynamic "
            "configuration"
        )
    return changed


def _thread_steps(old: BrokerConfig, new: BrokerConfig) -> Iterator[str]:
    """A thread count at most doubles or halves in one step. None of them has an effect here; the answers are Kafka's."""
    for name in THREAD_COUNTS:
        attribute = name.replace(".", "_")
        before, after = getattr(old, attribute), getattr(new, attribute)
        words = f"Dynamic thread count update validation failed for {name}={after}, value should"
        if after < before // 2:
            yield f"{words} be at least half the current value {before}"
        if after > before * 2:
            yield f"{words} not be greater than double the current value {before}"
    before, after = old.log_cleaner_threads, new.log_cleaner_threads
    if after < before // 2:
        yield f"Log cleaner threads cannot be reduced to less than half the current value {before}"
    if after > before * 2:
        yield f"Log cleaner threads cannot be increased to more than double the current value {before}"


def _local_retention(config: BrokerConfig) -> Iterator[str]:
    pairs = (
        ("log.local.retention.ms", config.log_local_retention_ms, "log.retention.ms", config.topic_defaults.retention_ms),
        ("log.local.retention.bytes", config.log_local_retention_bytes, "log.retention.bytes", config.log_retention_bytes),
    )  # fmt: skip
    for name, local, whole_name, whole in pairs:
        if whole < 0 or local == FOLLOWS_RETENTION:
            continue
        frame = f"Invalid value {local} for configuration {name}: Value must not be"
        if local == -1:
            yield f"{frame} -1 as {whole_name} value is set as {whole}."
        elif local > whole:
            yield f"{frame} more than {whole_name} property value: {whole}"


def validate_dynamic_names(layer: Mapping[str, str], *, per_broker: bool) -> None:
    table = BrokerConfig.TABLE
    _refuse("Cannot update these configs dynamically", (n for n in layer if n in table and not dynamic(n)))
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        (name for name in layer if name in PER_LISTENER_SECURITY),
    )
    for name, text in layer.items():
        setting = table.get(listener_base(name) or name)
        if setting is None or not dynamic(setting.name):
            continue
        try:
            parse(setting, text)
        except BadValue as error:
            raise _refused(str(error)) from error
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (name for name in layer if _for_one_broker(name)),
        )


def dynamic(name: str) -> bool:
    setting = BrokerConfig.TABLE.get(name)
    return setting is not None and setting.mode != READ_ONLY


def _for_one_broker(name: str) -> bool:
    base = listener_base(name)
    if base is not None:
        return base not in CLUSTER_LISTENER_SETTINGS
    setting = BrokerConfig.TABLE.get(name)
    return setting is not None and setting.mode == PER_BROKER


def _refuse(words: str, names: Iterable[str]) -> None:
    if refused_names := list(names):
        raise _refused(f"{words}: [{', '.join(refused_names)}]")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
