"""Connectors as configuration: YAML, JSON or properties with Kafka Connect's names. Checked whole before anything is opened.

name: orders-to-postgres
connector.class: sql-sink
topics: orders
connection.url: postgresql://app@localhost/shop
insert.mode: upsert
pk.fields: id
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ottla.model.extras import extra_needed
from ottla.model.user_error import UserError

CONNECTORS = {
    "file-source": "ottla.connect.sources.files:FileSource",
    "sql-source": "ottla.connect.sources.tables:SqlSource",
    "sql-sink": "ottla.connect.sinks.connectors:SqlSinkConnector",
    "delta-sink": "ottla.connect.sinks.connectors:DeltaSinkConnector",
    "iceberg-sink": "ottla.connect.sinks.connectors:IcebergSinkConnector",
    "parquet-sink": "ottla.connect.sinks.connectors:ParquetSinkConnector",
    "mirror-source": "ottla.connect.sources.cluster:ClusterSource",
    "mirror-sink": "ottla.connect.sinks.cluster:ClusterSink",
    "org.apache.kafka.connect.mirror.MirrorSourceConnector": "ottla.connect.sources.cluster:ClusterSource",
    "org.apache.kafka.connect.file.FileStreamSourceConnector": "ottla.connect.sources.files:FileSource",
    "io.confluent.connect.jdbc.JdbcSourceConnector": "ottla.connect.sources.tables:SqlSource",
    "io.confluent.connect.jdbc.JdbcSinkConnector": "ottla.connect.sinks.connectors:SqlSinkConnector",
}
"""Short names, and those of the connectors whose settings these take; any other `connector.class` is MODULE:CLASS of one's own."""


def load_config(path: str) -> dict[str, str]:
    """The settings of a file, all as text; a nested `config` as Connect's REST API has it is taken apart."""
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if path.endswith(".properties"):
            content: Any = _properties(text)
        else:
            content = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from problem
    except (ValueError, yaml.YAMLError) as problem:
        raise UserError(f"{path} is neither YAML nor JSON: {str(problem).splitlines()[0]}") from problem
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no settings")
    nested = content.get("config")
    outer = {name: value for name, value in content.items() if name != "config"}
    return _flat({**nested, **outer} if isinstance(nested, dict) else content)


def _flat(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Settings inside settings are written with dots."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": _text(value)}
    return flat


def _properties(text: str) -> dict[str, str]:
    """NAME=VALUE lines, as connect-standalone takes them."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def connector_class(config: Mapping[str, str]) -> Any:
    class_name = need(config, "connector.class")
    place = CONNECTORS.get(class_name, class_name)
    module, _, name = place.partition(":")
    if not name:
        raise UserError(f"connector.class {class_name!r} is none of {', '.join(CONNECTORS)} and not MODULE:CLASS")
    try:
        with extra_needed(f"the connector {class_name}"):
            return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise UserError(f"connector.class {class_name!r} cannot be loaded: {problem}") from problem


def need(config: Mapping[str, str], name: str) -> str:
    value = config.get(name, "").strip()
    if not value:
        raise UserError(f"the connector {config.get('name', '?')!r} needs the setting {name}")
    return value


def flag(config: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = config.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise UserError(f"{name} is true or false, not {text!r}")
    return text == "true"


def number(config: Mapping[str, str], name: str, default: int) -> int:
    try:
        number = int(config.get(name, default))
    except ValueError:
        number = 0
    if number <= 0:
        raise UserError(f"{name} is a number above 0, not {config.get(name)!r}")
    return number


def words(config: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in config.get(name, "").split(",") if part.strip()]


def patterns(config: Mapping[str, str], name: str, default: str) -> list[re.Pattern[str]]:
    """A list of regular expressions; a plain name is a regular expression, too."""
    try:
        return [re.compile(pattern) for pattern in words({name: config.get(name, default)}, name)]
    except re.error as problem:
        raise UserError(f"{name} is not a list of regular expressions: {problem}") from problem


def under(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings of a prefix, without it."""
    return {name[len(prefix) :]: value for name, value in config.items() if name.startswith(prefix)}
