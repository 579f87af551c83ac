"""The controller's rules for settings: which may be stored, and their effective values. The table is
`ottla.env.config`.

`check_*` raise KafkaError with Kafka's code and text. The dynamic layers (cluster, this node) come from the image. The
typed configuration of a pair of layers is cached until one of them changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.describe import ConfigRow, describe_topic
from ottla.env.config.dynamic import validate_dynamic_update
from ottla.env.config.group import ClientMetricsConfig, GroupConfig
from ottla.env.config.overrides import (
    resolve_topic_config,
    validate_client_metrics,
    validate_group_overrides,
    validate_topic_overrides,
)
from ottla.env.config.settings import Kind, Setting
from ottla.env.config.topic import TopicConfig
from ottla.env.config.values import render
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC

Values = Mapping[str, str]

_TABLES: dict[int, Mapping[str, Setting]] = {
    RESOURCE_TOPIC: TopicConfig.TABLE,
    RESOURCE_BROKER: BrokerConfig.TABLE,
    RESOURCE_GROUP: GroupConfig.TABLE,
    RESOURCE_CLIENT_METRICS: ClientMetricsConfig.TABLE,
}


class ConfigRules:
    def __init__(self, config: BrokerConfig) -> None:
        self.static = config
        self._effective = config

    def effective(self, cluster: Values, node: Values) -> BrokerConfig:
        """The node's configuration under these dynamic layers."""
        layers = self._effective.layers
        if layers.cluster != cluster or layers.broker != node:
            self._effective = self.static.with_dynamic(cluster=dict(cluster), broker=dict(node))
        return self._effective

    def check_topic(self, values: Values, existing: Values, *, cluster: Values, node: Values) -> None:
        validate_topic_overrides(values, self.effective(cluster, node), existing)

    def check_broker(self, values: Values, *, per_broker: bool, cluster: Values, node: Values) -> None:
        validate_dynamic_update(self.effective(cluster, node), values, per_broker=per_broker)

    def check_group(self, values: Values, *, cluster: Values, node: Values) -> None:
        validate_group_overrides(values, self.effective(cluster, node))

    def check_client_metrics(self, name: str, values: Values) -> None:
        validate_client_metrics(name, values)

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether APPEND and SUBTRACT are allowed. Kafka's controller has no list settings for client-metrics
        subscriptions.
        """
        setting = _TABLES.get(resource_type, {}).get(name)
        return setting is not None and setting.kind is Kind.LIST and resource_type != RESOURCE_CLIENT_METRICS

    def default_value(self, resource_type: int, name: str) -> str | None:
        setting = _TABLES.get(resource_type, {}).get(name)
        return None if setting is None else render(setting.kind, setting.default)

    def topic_config(self, overrides: Values, *, cluster: Values, node: Values) -> TopicConfig:
        return resolve_topic_config(overrides, self.effective(cluster, node))

    def topic_rows(self, overrides: Values, *, cluster: Values, node: Values) -> list[ConfigRow]:
        """Every topic setting with its effective value and source, by name."""
        rows = describe_topic(overrides, self.effective(cluster, node))
        return sorted(rows, key=lambda row: row.name)
