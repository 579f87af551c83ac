"""A properties file for people: each line under a comment with its doc line from the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .broker.config import BrokerConfig, listener_base
from .properties import format_property

ONE_NODE: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "data",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
}
"""Broker and controller in one process, with every internal topic on one replica."""


def annotated(properties: Mapping[str, str]) -> str:
    """The text of a properties file that `load_text` reads back as `properties`."""
    lines: list[str] = []
    for name, text in properties.items():
        setting = BrokerConfig.TABLE.get(listener_base(name) or name)
        if setting is not None:
            lines.append(f"# {setting.doc}")
        lines.append(format_property(name, text))
    return "\n".join(lines) + "\n"
