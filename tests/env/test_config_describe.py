"""DescribeConfigs against two recorded nodes, row by row and field by field; changes of overrides and dynamic settings."""

from __future__ import annotations

from typing import Any

import pytest
from tests.env.recorded import golden

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.describe import (
    ConfigRow,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.env.config.load import load
from ottla.env.config.settings import Kind

# The admin client's names for the sources that the wire numbers.
SOURCES = {"TOPIC_CONFIG": "DYNAMIC_TOPIC_CONFIG", "GROUP_CONFIG": "DYNAMIC_GROUP_CONFIG"}
SOURCES["CLIENT_METRICS_CONFIG"] = "DYNAMIC_CLIENT_METRICS_CONFIG"
RESOURCES = ("BROKER/1", "BROKER/", "TOPIC/plain", "TOPIC/over", "GROUP/g", "CLIENT_METRICS/cm")


def recorded_node(tag: str) -> BrokerConfig:
    facts = golden("describe")
    # Two names that Kafka ignores and that we refuse at start; what DescribeConfigs makes of them still holds.
    unknown = {k: v for k, v in facts[f"{tag}.properties"].items() if k.startswith("unknown.plugin.")}
    known = {k: v for k, v in facts[f"{tag}.properties"].items() if k not in unknown}
    static = {**load(known).layers.static, **unknown}
    return BrokerConfig.from_layers(load(known).layers._replace(static=static)).with_dynamic(
        cluster=facts[f"{tag}.dynamic"]["cluster"], broker=facts[f"{tag}.dynamic"]["broker"]
    )


def rows_of(tag: str, resource: str) -> list[ConfigRow]:
    config = recorded_node(tag)
    overrides = golden("describe")[f"{tag}.overrides"].get(resource, {})
    kind = resource.partition("/")[0]
    if resource == "BROKER/":
        return describe_cluster_default(config)
    if kind == "BROKER":
        return describe_broker(config)
    if kind == "TOPIC":
        return describe_topic(overrides, config)
    return describe_group(overrides, config) if kind == "GROUP" else describe_client_metrics(overrides)


def as_recorded(row: ConfigRow) -> dict[str, Any]:
    def source(name: str) -> str:
        return SOURCES.get(name, name)

    return {
        "name": row.name,
        "value": row.value,
        "source": source(row.source.name),
        "read_only": row.read_only,
        "sensitive": row.sensitive,
        "type": Kind(row.kind).name if row.kind else "UNKNOWN",
        "synonyms": [[s.name, s.value, source(s.source.name)] for s in row.synonyms],
    }


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("tag", ["plain", "odd"])
def test_a_resource_is_described_as_by_kafka(tag: str, resource: str) -> None:
    ours = {row.name: as_recorded(row) for row in rows_of(tag, resource)}
    theirs = {row["name"]: row for row in golden("describe")[f"{tag} {resource}"]}
    assert ours.keys() == theirs.keys()
    assert {name: row for name, row in ours.items() if row != theirs[name]} == {}


def test_a_secret_is_in_no_row() -> None:
    text = repr(rows_of("odd", "BROKER/1")) + repr(rows_of("odd", "BROKER/"))
    assert "secret" not in text.replace("secret.key", "").replace("client.secret", "").replace("secret of", "")
    assert "pw2" not in text
    assert "hunter2" not in text


def test_every_known_row_has_our_doc_line() -> None:
    for row in rows_of("plain", "BROKER/1"):
        assert row.documentation
        assert row.is_default == (row.source.name == "DEFAULT_CONFIG")


def test_a_dynamic_value_takes_the_place_of_its_synonyms() -> None:
    config = recorded_node("odd")
    assert config.log_retention_minutes is None
    assert config.topic_defaults.retention_ms == -1
    assert config.topic_defaults.segment_bytes == 4_000_000
    assert config.with_dynamic(cluster={}, broker={}).topic_defaults.retention_ms == 120 * 60_000


def test_a_dynamic_value_that_no_longer_parses_is_passed_over() -> None:
    config = recorded_node("plain").with_dynamic(cluster={"log.segment.bytes": "17", "log.roll.ms": "5"}, broker={})
    assert (config.log_segment_bytes, config.log_roll_ms) == (1 << 30, 5)


def test_an_address_with_a_login_is_not_shown() -> None:
    """A principal with DESCRIBE_CONFIGS read the registry's password in `ottla.schema.registry.url`."""
    secret = "S3cret-in-an-address"
    named = {
        "ottla.schema.registry.url": f"http://service:{secret}@registry.example:8081",
        "ottla.traces.endpoint": f"https://service:{secret}@traces.example/v1/traces",
        "sasl.oauthbearer.token.endpoint.url": f"https://id:{secret}@provider.example/token",
    }
    config = load(golden("describe")["plain.properties"] | named)
    rows = {row.name: row for row in describe_broker(config)}
    assert secret not in repr(rows)
    assert [(rows[name].value, rows[name].sensitive) for name in named] == [(None, True)] * 3
    plain = load(
        golden("describe")["plain.properties"] | {"ottla.schema.registry.url": "http://registry.example:8081/@"}
    )
    shown = {row.name: row for row in describe_broker(plain)}["ottla.schema.registry.url"]
    assert (shown.value, shown.sensitive) == ("http://registry.example:8081/@", False)
