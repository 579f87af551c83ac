"""Overrides of topics, groups and client-metrics subscriptions: checked as Kafka checks them, resolved to typed values.

An override is text under Kafka's name. `validate_*` checks what a client sends and raises KafkaError with Kafka's code
and text. `resolve_*` reads the overrides in the metadata log. They were valid once, so an unknown name or value is
ignored, not refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.model.errors import ErrorCode, KafkaError

from .broker.config import BrokerConfig
from .group import ClientMetricsConfig, GroupConfig
from .settings import Setting
from .topic import TopicConfig
from .values import BadValue, parse

_TIERS_OFF: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
_TIER_KEPT: Final = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
    "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
    "remote storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
_INTERVAL_MS: Final = (100, 3_600_000)
CLIENT_MATCHES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_CHECKED: Final = (
    "segment.bytes", "segment.ms", "segment.jitter.ms", "segment.index.bytes", "flush.messages", "flush.ms",
    "retention.bytes", "retention.ms", "max.message.bytes", "index.interval.bytes", "delete.retention.ms",
    "min.compaction.lag.ms", "max.compaction.lag.ms", "file.delete.delay.ms", "min.cleanable.dirty.ratio",
    "cleanup.policy", "unclean.leader.election.enable", "min.insync.replicas", "compression.type",
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "preallocate",
    "message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
    "leader.replication.throttled.replicas", "follower.replication.throttled.replicas", "remote.storage.enable",
    "local.retention.ms", "local.retention.bytes", "remote.log.copy.disable", "remote.log.delete.on.disable",
)  # fmt: skip
"""The order in which Kafka looks at a topic's settings: of two bad ones the answer names the first of these."""


def validate_topic_overrides(
    overrides: Mapping[str, str | None], broker: BrokerConfig, existing: Mapping[str, str] | None = None
) -> None:
    """KafkaError(INVALID_CONFIG) unless a topic may have these overrides; `existing` are those it has now."""
    _refuse_nulls("topic", overrides)
    _refuse_unknown("topic", overrides, TopicConfig.TABLE)
    checked_overrides = {name: overrides[name] for name in _CHECKED if name in overrides}
    values = _parse_all(TopicConfig.TABLE, {**checked_overrides, **overrides})
    low = values.get("min.compaction.lag.ms", broker.log_cleaner_min_compaction_lag_ms)
    high = values.get("max.compaction.lag.ms", broker.log_cleaner_max_compaction_lag_ms)
    if low > high:
        raise _invalid(f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})")
    if values.get("ottla.schema.validation", "off") != "off" and not broker.ottla_schema_registry_url:
        raise _invalid("ottla.schema.validation needs a registry to ask: set ottla.schema.registry.url on the brokers")
    if values.get("ottla.encryption.forget") and not broker.encrypts_at_rest:
        raise _invalid("ottla.encryption.forget needs encryption at rest: set ottla.encryption.master.key.file")
    if values.get("remote.storage.enable", False):
        raise _invalid(_TIERS_OFF)
    was_tiered = (existing or {}).get("remote.storage.enable", "false").lower() == "true"
    if was_tiered and not values.get("remote.log.delete.on.disable", False):
        raise _invalid(_TIER_KEPT)


def resolve_topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """The effective settings of a topic. Without overrides it is the broker's shared instance."""
    if not overrides:
        return broker.topic_defaults
    changes = _typed(TopicConfig.TABLE, overrides)
    if (small := changes.get("internal_segment_bytes")) is not None:
        changes["segment_bytes"] = small
    return broker.topic_defaults.replace(**changes)


def validate_group_overrides(overrides: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """KafkaError(INVALID_CONFIG) unless a group may have these overrides under the broker's bounds."""
    _refuse_nulls("group", overrides)
    _refuse_unknown("group", overrides, GroupConfig.TABLE)
    values = {name: row.default for name, row in GroupConfig.TABLE.items()}
    values.update(_parse_all(GroupConfig.TABLE, overrides))
    for name in overrides:
        _check_bounds(name, values[name], broker)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values[session] <= values[heartbeat]:
            raise _invalid(f"{session} must be greater than {heartbeat}")


def _check_bounds(name: str, value: Any, broker: BrokerConfig) -> None:
    kind, _, setting_name = name.partition(".")
    bound = setting_name.removeprefix("num.")
    for side, breaks, words in (("min", int.__lt__, "greater"), ("max", int.__gt__, "less")):
        limit_name = f"group.{kind}.{side}.{bound}"
        limit = getattr(broker, limit_name.replace(".", "_"), None)
        if limit is not None and breaks(value, limit):
            raise _invalid(f"{name} must be {words} than or equal to {limit_name}")


def resolve_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """The effective settings of a group."""
    values = {
        setting.attribute: value
        for setting in GroupConfig.TABLE.values()
        if (value := broker.inherited(setting)) is not None
    }
    return GroupConfig(**{**values, **_typed(GroupConfig.TABLE, overrides)})


def validate_client_metrics(subscription: str, overrides: Mapping[str, str]) -> None:
    """KafkaError unless the subscription may have these settings."""
    if not subscription:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for name in overrides:
        if name not in ClientMetricsConfig.TABLE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    values = _parse_all(ClientMetricsConfig.TABLE, overrides)
    low, high = _INTERVAL_MS
    interval = values.get("interval.ms", high)
    if not low <= interval <= high:
        message = f"Invalid value {interval} for interval.ms, interval must be between {low} and {high} (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    client_patterns(values.get("match", ()))


def resolve_client_metrics(overrides: Mapping[str, str]) -> ClientMetricsConfig:
    return ClientMetricsConfig(**_typed(ClientMetricsConfig.TABLE, overrides))


def client_patterns(match: Iterable[str]) -> dict[str, re.Pattern[str]]:
    """The `match` entries of a subscription, by what they match."""
    patterns: dict[str, re.Pattern[str]] = {}
    for entry in match:
        parts = entry.split("=")
        if len(parts) != 2 or parts[0].strip() not in CLIENT_MATCHES:
            raise _invalid(f"Illegal client matching pattern: {entry}")
        try:
            patterns[parts[0].strip()] = re.compile(parts[1].strip())
        except re.error as error:
            raise _invalid(f"Illegal client matching pattern: {entry}") from error
    return patterns


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _refuse_nulls(what: str, overrides: Mapping[str, str | None]) -> None:
    if nulls := [name for name, text in overrides.items() if text is None]:
        raise _invalid(f"Null value not supported for {what} configs: {','.join(nulls)}")


def _refuse_unknown(what: str, overrides: Iterable[str], table: Mapping[str, Setting]) -> None:
    for name in overrides:
        if name not in table:
            raise _invalid(f"Unknown {what} config name: {name}")


def _parse_all(table: Mapping[str, Setting], overrides: Mapping[str, str | None]) -> dict[str, Any]:
    try:
        return {name: parse(table[name], text) for name, text in overrides.items() if text is not None}
    except BadValue as error:
        raise _invalid(str(error)) from error


def _typed(table: Mapping[str, Setting], overrides: Mapping[str, str]) -> dict[str, Any]:
    """Attribute -> value of the overrides that are known and still parse."""
    typed: dict[str, Any] = {}
    for name, text in overrides.items():
        setting = table.get(name)
        if setting is None:
            continue
        try:
            typed[setting.attribute] = setting.typed(parse(setting, text))
        except BadValue:
            continue
    return typed
