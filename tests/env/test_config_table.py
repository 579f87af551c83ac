"""The table against Kafka's own: every name, type, default, range, importance and update mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.env.recorded import golden, node

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.group import ClientMetricsConfig, GroupConfig
from ottla.env.config.load import load
from ottla.env.config.settings import REQUIRED, USED, Setting, Settings
from ottla.env.config.topic import TopicConfig
from ottla.env.config.values import render

TABLES: dict[str, type[Settings]] = {
    "broker": BrokerConfig,
    "topic": TopicConfig,
    "group": GroupConfig,
    "client_metrics": ClientMetricsConfig,
}
# Checks of ours where Kafka has none or another: it loads a Java class, and we say beforehand that we cannot.
OWN_CHECKS = {
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "client.quota.callback.class",
    "config.providers",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "create.topic.policy.class.name",
    "offsets.topic.compression.codec",
    "principal.builder.class",
    "sasl.server.callback.handler.class",
    "share.auto.offset.reset",
    "share.coordinator.state.topic.compression.codec",
    "ssl.engine.factory.class",
}


def accepted(setting: Setting) -> str | None:
    """Our words for a range in the form of Kafka's validator."""
    words = setting.check.accepts if setting.check else None
    if words is None or words.startswith("["):
        return words
    for lead in ("one of ", "any of "):
        if words.startswith(lead):
            body = words.removeprefix(lead)
            any_case = body.endswith(" in any case")
            return f"(case insensitive) [{body.removesuffix(' in any case')}]" if any_case else f"[{body}]"
    return {
        "a list": None,
        "a list, not empty": None,
        "text, not empty": "non-empty string",
        "* or partition:broker,...": "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    }[words]


@pytest.mark.parametrize("kind", TABLES)
def test_every_setting_of_kafka_is_here_with_its_facts(kind: str) -> None:
    table = TABLES[kind].TABLE
    recorded = golden("settings")[kind]
    assert {row["name"] for row in recorded} == {name for name, setting in table.items() if not setting.undeclared}
    for row in recorded:
        setting = table[row["name"]]
        ours = {
            "name": setting.name,
            "type": setting.kind.name,
            "default": None if setting.default is REQUIRED else render(setting.kind, setting.default),
            "required": setting.default is REQUIRED,
            "importance": setting.importance.upper(),
            "internal": setting.internal,
        }
        assert ours == {key: row[key] for key in ours}
        if setting.name not in OWN_CHECKS:
            assert accepted(setting) == row["validator"], setting.name
        if kind == "broker":
            assert setting.mode == row["mode"], setting.name
        if kind in ("topic", "group"):
            assert (setting.synonyms[0].name if setting.synonyms else None) == row["synonym"], setting.name


def test_settings_that_exist_only_dynamically() -> None:
    for row in golden("settings")["dynamic_only"]:
        setting = BrokerConfig.TABLE[row["name"]]
        assert (setting.kind.name, str(setting.default), setting.mode) == (row["type"], row["default"], row["mode"])
        assert setting.undeclared


def test_every_row_is_documented_in_one_short_sentence() -> None:
    for table in TABLES.values():
        for setting in table.TABLE.values():
            assert 8 <= len(setting.doc) <= 100, setting
            assert setting.doc.endswith("."), setting
            assert setting.effect == USED or setting.effect.startswith("no effect here: "), setting


def test_synonyms_name_settings_of_the_broker() -> None:
    for table in (TopicConfig, GroupConfig):
        for setting in table.TABLE.values():
            assert all(synonym.name in BrokerConfig.TABLE for synonym in setting.synonyms)


def test_instances_are_frozen_slotted_and_compare_by_value() -> None:
    config = TopicConfig(retention_ms=5)
    assert not hasattr(config, "__dict__")
    with pytest.raises(AttributeError, match="TopicConfig is frozen; retention_ms cannot be set"):
        config.retention_ms = 6  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del config.retention_ms
    assert config == TopicConfig(retention_ms=5)
    assert hash(config) == hash(TopicConfig(retention_ms=5))
    assert config != TopicConfig()
    assert config.replace(segment_bytes=7).retention_ms == 5
    assert repr(config.replace(segment_bytes=7)) == "TopicConfig(retention_ms=5, segment_bytes=7)"
    with pytest.raises(TypeError, match="TopicConfig has no setting retention"):
        TopicConfig(retention=1)
    with pytest.raises(TypeError, match="BrokerConfig needs process_roles"):
        BrokerConfig()


def test_a_password_is_not_in_the_representation() -> None:
    config = load({**node(), "ssl.keystore.password": "secret"})
    assert config.ssl_keystore_password == "secret"
    assert "secret" not in repr(config)
    assert "ssl_keystore_password=[hidden]" in repr(config)


def test_topic_defaults_are_typed() -> None:
    config = TopicConfig()
    assert config.cleanup_policy == frozenset({"delete"})
    assert (config.delete, config.compact) == (True, False)
    assert config.segment_bytes == 1 << 30
    assert config.min_cleanable_dirty_ratio == 0.5
    assert config.leader_replication_throttled_replicas == ()
    assert config.internal_segment_bytes is None


def test_the_table_imports_quickly(tmp_path: Path) -> None:
    """The server starts in half a second; the table may take 15 ms of it. CPU time, for the cores are shared."""
    program = (
        "import re, enum, typing, collections.abc, functools, time, ottla.model.errors\n"
        "start = time.process_time()\n"
        "import ottla.env.config\n"
        "print(time.process_time() - start)"
    )
    command = [sys.executable, "-c", program]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    variables.update(PYTHONPATH=os.pathsep.join(sys.path), PYTHONPYCACHEPREFIX=str(tmp_path))
    runs = [subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout for _ in range(6)]
    assert min(map(float, runs)) < 0.025
