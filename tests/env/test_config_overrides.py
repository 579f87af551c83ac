"""Overrides and dynamic updates: Kafka's verdicts and words, and what they resolve to."""

from __future__ import annotations

from typing import Any

import pytest
from tests.env.recorded import golden, node

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.dynamic import validate_dynamic_names, validate_dynamic_update
from ottla.env.config.load import load
from ottla.env.config.overrides import (
    client_patterns,
    resolve_client_metrics,
    resolve_group_config,
    resolve_topic_config,
    validate_client_metrics,
    validate_group_overrides,
    validate_topic_overrides,
)
from ottla.model.errors import ErrorCode, KafkaError


@pytest.fixture
def broker() -> BrokerConfig:
    return load(node())


def verdict(case: dict[str, Any]) -> str | None:
    """Kafka's message without the class of its exception."""
    return case["error"].partition(": ")[2] if case["error"] else None


def test_of_two_bad_settings_the_first_that_kafka_looks_at_is_named(broker: BrokerConfig) -> None:
    with pytest.raises(KafkaError, match=r"Invalid value 14 for configuration segment\.bytes"):
        validate_topic_overrides({"compression.lz4.level": "18", "segment.bytes": "14"}, broker)


@pytest.mark.parametrize("case", golden("cases")["topic"], ids=lambda case: str(case["props"]))
def test_topic_overrides(case: dict[str, Any], broker: BrokerConfig) -> None:
    if case["error"] is None:
        validate_topic_overrides(case["props"], broker, case.get("existing"))
        return
    with pytest.raises(KafkaError) as caught:
        validate_topic_overrides(case["props"], broker, case.get("existing"))
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_CONFIG, verdict(case))


@pytest.mark.parametrize("case", golden("cases")["group"], ids=lambda case: str(case["props"]))
def test_group_overrides(case: dict[str, Any], broker: BrokerConfig) -> None:
    if case["error"] is None:
        validate_group_overrides(case["props"], broker)
        return
    with pytest.raises(KafkaError) as caught:
        validate_group_overrides(case["props"], broker)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_CONFIG, verdict(case))


@pytest.mark.parametrize("case", golden("cases")["client_metrics"], ids=lambda case: f"{case['name']}-{case['props']}")
def test_client_metrics(case: dict[str, Any]) -> None:
    if case["error"] is None:
        validate_client_metrics(case["name"], case["props"])
        return
    with pytest.raises(KafkaError) as caught:
        validate_client_metrics(case["name"], case["props"])
    code = ErrorCode.INVALID_REQUEST if "InvalidRequest" in case["error"] else ErrorCode.INVALID_CONFIG
    assert (caught.value.code, caught.value.message) == (code, verdict(case))


@pytest.mark.parametrize("case", golden("cases")["dynamic"], ids=lambda case: f"{case['props']}-{case['per_broker']}")
def test_dynamic_names(case: dict[str, Any]) -> None:
    if case["error"] is None:
        validate_dynamic_names(case["props"], per_broker=case["per_broker"])
        return
    with pytest.raises(KafkaError) as caught:
        validate_dynamic_names(case["props"], per_broker=case["per_broker"])
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, verdict(case))


def test_a_null_is_refused_as_by_kafka(broker: BrokerConfig) -> None:
    with pytest.raises(KafkaError, match=r"Null value not supported for topic configs: retention.ms"):
        validate_topic_overrides({"retention.ms": None}, broker)
    with pytest.raises(KafkaError, match=r"Null value not supported for group configs: consumer.session.timeout.ms"):
        validate_group_overrides({"consumer.session.timeout.ms": None}, broker)


def test_the_lag_conflict_counts_the_brokers_values() -> None:
    broker = load(node(log_cleaner_max_compaction_lag_ms="4"))
    with pytest.raises(KafkaError, match=r"conflict topic config setting min.compaction.lag.ms \(5\) > .* \(4\)"):
        validate_topic_overrides({"min.compaction.lag.ms": "5"}, broker)


def test_a_topic_resolves_override_over_dynamic_over_file_over_default() -> None:
    broker = load(node(log_segment_bytes="2000000", log_retention_minutes="3", log_roll_hours="1"))
    assert resolve_topic_config({}, broker) is broker.topic_defaults
    assert broker.topic_defaults.segment_bytes == 2_000_000
    assert broker.topic_defaults.retention_ms == 180_000
    assert broker.topic_defaults.segment_ms == 3_600_000
    cluster = broker.with_dynamic(cluster={"log.segment.bytes": "3000000"}, broker={})
    assert resolve_topic_config({}, cluster).segment_bytes == 3_000_000
    own = broker.with_dynamic(cluster={"log.segment.bytes": "3000000"}, broker={"log.segment.bytes": "4000000"})
    assert resolve_topic_config({}, own).segment_bytes == 4_000_000
    topic = resolve_topic_config({"segment.bytes": "5000000", "cleanup.policy": "compact, delete"}, own)
    assert topic.segment_bytes == 5_000_000
    assert topic.cleanup_policy == {"compact", "delete"}
    assert topic.retention_ms == 180_000


def test_a_small_segment_for_tests_is_the_segment_size(broker: BrokerConfig) -> None:
    assert resolve_topic_config({"internal.segment.bytes": "300"}, broker).segment_bytes == 300


def test_what_is_no_longer_known_is_passed_over(broker: BrokerConfig) -> None:
    overrides = {"message.format.version": "2.8", "segment.bytes": "14", "retention.ms": "7"}
    topic = resolve_topic_config(overrides, broker)
    assert (topic.segment_bytes, topic.retention_ms) == (1 << 30, 7)


def test_a_group_resolves_over_the_broker() -> None:
    broker = load(node(group_consumer_session_timeout_ms="50000"))
    group = resolve_group_config({"consumer.heartbeat.interval.ms": "6000"}, broker)
    assert (group.consumer_session_timeout_ms, group.consumer_heartbeat_interval_ms) == (50_000, 6_000)
    assert group.share_isolation_level == "read_uncommitted"


def test_a_subscription_resolves() -> None:
    config = resolve_client_metrics({"interval.ms": "1000", "match": "client_id=app.*"})
    assert config.interval_ms == 1000
    assert client_patterns(config.match)["client_id"].fullmatch("app-7")


def in_step(message: str) -> str:
    """Kafka wraps what its reconfigurable parts refuse."""
    kind = "org.apache.kafka.common.config.ConfigException"
    return f"Invalid value {kind}: {message} for configuration Invalid dynamic configuration"


@pytest.mark.parametrize(
    ("layer", "per_broker", "message"),
    [
        # Each recorded from IncrementalAlterConfigs on a running node.
        ({"node.id": "3"}, True, "Cannot update these configs dynamically: [node.id]"),
        (
            {"log.retention.ms": "0"},
            True,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            {"log.cleaner.dedupe.buffer.size": "5"},
            False,
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"cordoned.log.dirs": "/nope"},
            True,
            (
                "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
                "Missing entries : /nope"
            ),
        ),
        (
            {"num.io.threads": "100"},
            True,
            in_step(
                "Dynamic thread count update validation failed for num.io.threads=100, value should not be greater "
                "than double the current value 8"
            ),
        ),
        (
            {"background.threads": "1"},
            False,
            in_step(
                "Dynamic thread count update validation failed for background.threads=1, value should be at least "
                "half the current value 10"
            ),
        ),
        (
            {"log.cleaner.threads": "100"},
            True,
            in_step("Log cleaner threads cannot be increased to more than double the current value 1"),
        ),
        (
            {"log.local.retention.ms": "99999999999"},
            True,
            in_step(
                "Invalid value 99999999999 for configuration log.local.retention.ms: Value must not be more than "
                "log.retention.ms property value: 604800000"
            ),
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:29499"},
            True,
            (
                "requirement failed: controller.listener.names must contain at least one value appearing in the "
                "'listeners' configuration when running the KRaft controller role"
            ),
        ),
        (
            {"group.consumer.assignment.interval.ms": "20000"},
            False,
            (
                "group.consumer.assignment.interval.ms must be less than or equal to "
                "group.consumer.max.assignment.interval.ms"
            ),
        ),
        (
            {"max.connections.per.ip.overrides": "a b:1"},
            True,
            "max.connections.per.ip.overrides contains invalid addresses : a b",
        ),
        (
            {"min.insync.replicas": "x"},
            False,
            "Invalid value x for configuration min.insync.replicas: Not a number of type INT",
        ),
    ],
)
def test_a_dynamic_update_is_refused_as_by_kafka(
    layer: dict[str, str], per_broker: bool, message: str, broker: BrokerConfig
) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_dynamic_update(broker, layer, per_broker=per_broker)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    "layer", [{"num.network.threads": "1"}, {"num.io.threads": "16"}, {"log.cleanup.policy": "compact,compact"}]
)
def test_a_dynamic_update_is_accepted_as_by_kafka(layer: dict[str, str], broker: BrokerConfig) -> None:
    validate_dynamic_update(broker, layer, per_broker=True)


def test_a_dynamic_update_gives_the_new_configuration(broker: BrokerConfig) -> None:
    cluster = validate_dynamic_update(broker, {"message.max.bytes": "2000"}, per_broker=False)
    assert cluster.topic_defaults.max_message_bytes == 2000
    both = validate_dynamic_update(cluster, {"message.max.bytes": "3000"}, per_broker=True)
    assert both.message_max_bytes == 3000
    assert broker.message_max_bytes == 1_048_588
    assert validate_dynamic_update(both, {}, per_broker=True).message_max_bytes == 2000
