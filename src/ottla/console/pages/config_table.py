"""Settings as rows of a table: value, where it comes from, what it means. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.client.configs import ConfigResourceType, describe_configs
from ottla.console.cluster.gateway import Gateway
from ottla.model.config_source import ConfigSource
from ottla.protocol.generated.describe_configs_response import DescribeConfigsResourceResult

_SOURCES: dict[int, str] = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "set on the topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "set on the broker, while running",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "set for all brokers, while running",
    ConfigSource.STATIC_BROKER_CONFIG: "server.properties",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "set on the group",
}


@dataclass(frozen=True, slots=True)
class ConfigTableRow:
    name: str
    value: str
    source: str
    own: bool
    """Set at this very level, so it can be reset."""
    sensitive: bool
    read_only: bool
    doc: str


def config_rows(configs: Iterable[DescribeConfigsResourceResult], own: ConfigSource, kind: str) -> list[ConfigTableRow]:
    documents = _documents(kind)
    return [
        ConfigTableRow(
            config.name,
            "" if config.is_sensitive else config.value or "",
            _SOURCES.get(config.config_source, "unknown"),
            config.config_source == own,
            config.is_sensitive,
            config.read_only,
            documents.get(config.name, ""),
        )
        for config in sorted(configs, key=lambda config: (config.config_source != own, config.name))
    ]


async def until_changed(
    gateway: Gateway, kind: ConfigResourceType, resource: str, name: str, level: ConfigSource, value: str | None
) -> None:
    """Waits a few seconds until the broker shows the value that was set at `level` (None: the value was removed)."""

    def shows(configs: dict[str, list[DescribeConfigsResourceResult]]) -> bool:
        config = next((config for config in configs.get(resource, []) if config.name == name), None)
        if config is None:
            return True
        own = next((other for other in config.synonyms if other.source == level), None)
        if value is None or own is None:
            return (own is None) == (value is None)
        return config.is_sensitive or own.value == value

    await gateway.ask_until(lambda cluster: describe_configs(cluster, kind, [resource], synonyms=True), shows)


def _documents(kind: str) -> dict[str, str]:
    """The text for each setting, from our own table of settings; the names are Kafka's."""
    from ottla.env.config.broker.config import BrokerSettings
    from ottla.env.config.topic import TopicConfig

    table = TopicConfig.TABLE if kind == "topic" else BrokerSettings.TABLE
    return {name: setting.doc for name, setting in table.items()}
