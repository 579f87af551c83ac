"""Dynamic broker settings: which names may change without a restart, for one broker or for all of them.

`validate_dynamic_update` takes the full layer as it would be after the change and raises KafkaError(INVALID_REQUEST)
with Kafka's text; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def validate_dynamic_update(config: BrokerConfig, layer: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """The configuration as it would be with `layer` in place of the broker's or the cluster's dynamic settings."""
    validate_dynamic_names(layer, per_broker=per_broker)
    if per_broker:
        changed = config.with_dynamic(cluster=config.layers.cluster, broker=layer)
    else:
        changed = config.with_dynamic(cluster=layer, broker=config.layers.broker)
    for problem in cross_problems(changed):
        raise _refused(problem.kafka_message)
    return changed


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
    if found := list(names):
        raise _refused(f"{words}: [{', '.join(found)}]")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
