"""How often members report, how long they may be silent, and how often a group is assigned: each group may set its own.

A group's setting (ConfigResource GROUP) is held within the broker's limits. Without such a setting the broker's own
setting counts, and for dynamic settings the cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, MetadataImage


class ConsumerTimings(NamedTuple):
    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_assignment_interval_ms: int


def consumer_timings(group_id: str, image: MetadataImage, settings: GroupCoordinatorSettings) -> ConsumerTimings:
    own = image.configs.get((RESOURCE_GROUP, group_id), {})
    cluster = image.configs.get((RESOURCE_BROKER, ""), {})
    return ConsumerTimings(
        _setting("session.timeout.ms", own, {}, settings),
        _setting("heartbeat.interval.ms", own, {}, settings),
        _setting("assignment.interval.ms", own, cluster, settings),
    )


def _setting(name: str, own: Mapping[str, str], cluster: Mapping[str, str], settings: GroupCoordinatorSettings) -> int:
    attribute = name.replace(".", "_")
    value = own.get(f"consumer.{name}")
    if value is not None:
        low = int(getattr(settings, f"group_consumer_min_{attribute}"))
        high = int(getattr(settings, f"group_consumer_max_{attribute}"))
        return min(max(int(value), low), high)
    inherited = cluster.get(f"group.consumer.{name}")
    return int(getattr(settings, f"group_consumer_{attribute}")) if inherited is None else int(inherited)
