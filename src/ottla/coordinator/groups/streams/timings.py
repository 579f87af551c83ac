"""How often members of a streams group report, how long they may be silent, and how they are assigned.

A group's setting (ConfigResource GROUP) is held within the broker's limits. Without such a setting the broker's own
setting counts, and for dynamic settings the cluster's.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, MetadataImage


class StreamsTimings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    num_standby_replicas: int

    @property
    def assignment_configs(self) -> dict[str, str]:
        """The settings of an assignment: a change of these settings causes a new assignment."""
        return {"num.standby.replicas": str(self.num_standby_replicas)}


def streams_timings(group_id: str, image: MetadataImage, settings: GroupCoordinatorSettings) -> StreamsTimings:
    own = image.configs.get((RESOURCE_GROUP, group_id), {})
    cluster = image.configs.get((RESOURCE_BROKER, ""), {})
    interval_ms = cluster.get("group.streams.assignment.interval.ms", settings.group_streams_assignment_interval_ms)
    return StreamsTimings(
        _within(
            int(own.get("streams.session.timeout.ms", settings.group_streams_session_timeout_ms)),
            settings.group_streams_min_session_timeout_ms,
            settings.group_streams_max_session_timeout_ms,
        ),
        _within(
            int(own.get("streams.heartbeat.interval.ms", settings.group_streams_heartbeat_interval_ms)),
            settings.group_streams_min_heartbeat_interval_ms,
            settings.group_streams_max_heartbeat_interval_ms,
        ),
        _within(
            int(own.get("streams.assignment.interval.ms", interval_ms)),
            settings.group_streams_min_assignment_interval_ms,
            settings.group_streams_max_assignment_interval_ms,
        ),
        int(own.get("streams.initial.rebalance.delay.ms", settings.group_streams_initial_rebalance_delay_ms)),
        min(
            int(own.get("streams.num.standby.replicas", settings.group_streams_num_standby_replicas)),
            settings.group_streams_max_standby_replicas,
        ),
    )


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
