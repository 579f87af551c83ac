"""How often members of a consumer group report, how long they may be silent, and how often the group is assigned."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.groups.timing_settings import timing_settings
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.metadata.image import MetadataImage


class ConsumerTimings(NamedTuple):
    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_assignment_interval_ms: int


_ATTRIBUTES = tuple(field.removeprefix("consumer_") for field in ConsumerTimings._fields)


def consumer_timings(group_id: str, image: MetadataImage, settings: GroupCoordinatorSettings) -> ConsumerTimings:
    return ConsumerTimings(*timing_settings("consumer", _ATTRIBUTES, group_id, image, settings))
