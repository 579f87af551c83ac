"""Eligible leader replicas need one min.insync.replicas for the whole cluster (KIP-966)."""

from __future__ import annotations

from ottla.controller.state import ControllerState
from ottla.metadata.image import RESOURCE_BROKER
from ottla.metadata.records import ConfigRecord
from ottla.protocol.primitives import Message

MIN_ISR = "min.insync.replicas"


def elr_safety_records(state: ControllerState, cluster_config: dict[str, str]) -> list[Message]:
    """Store the cluster's value if it is missing, and remove the values of single brokers."""
    records: list[Message] = []
    if MIN_ISR not in cluster_config:
        static = state.rules.static.topic_defaults.min_insync_replicas
        records.append(ConfigRecord(RESOURCE_BROKER, "", MIN_ISR, str(static)))
    records += [
        ConfigRecord(RESOURCE_BROKER, name, MIN_ISR, None)
        for (kind, name), values in state.image.configs.items()
        if kind == RESOURCE_BROKER and name and MIN_ISR in values
    ]
    return records
