"""The configuration table: every setting of Kafka 4.3 once, with its type, default, check, update mode and doc line.

`settings` defines the class of a row; `topic`, `group` and `broker/` declare the rows. `values` and `properties` parse
text, and `load` makes a BrokerConfig of a properties file. `overrides` and `dynamic` check the changes that clients
send; `describe` answers DescribeConfigs. Nothing here does I/O.
"""

from __future__ import annotations

from .broker.config import BrokerConfig, Layers
from .describe import (
    ConfigRow,
    ConfigSynonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from .dynamic import validate_dynamic_update
from .group import ClientMetricsConfig, GroupConfig
from .listeners import Endpoint
from .load import load, load_text, no_effect_line, unknown_lines
from .overrides import (
    client_patterns,
    resolve_client_metrics,
    resolve_group_config,
    resolve_topic_config,
    validate_client_metrics,
    validate_group_overrides,
    validate_topic_overrides,
)
from .problems import ConfigError
from .settings import Kind, Setting, Settings
from .topic import TopicConfig

__all__ = [
    "BrokerConfig",
    "ClientMetricsConfig",
    "ConfigError",
    "ConfigRow",
    "ConfigSynonym",
    "Endpoint",
    "GroupConfig",
    "Kind",
    "Layers",
    "Setting",
    "Settings",
    "TopicConfig",
    "client_patterns",
    "describe_broker",
    "describe_client_metrics",
    "describe_cluster_default",
    "describe_group",
    "describe_topic",
    "load",
    "load_text",
    "no_effect_line",
    "resolve_client_metrics",
    "resolve_group_config",
    "resolve_topic_config",
    "unknown_lines",
    "validate_client_metrics",
    "validate_dynamic_update",
    "validate_group_overrides",
    "validate_topic_overrides",
]
