"""How often members of a share group report, how long they may be silent, and how often the group is assigned."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.groups.timing_settings import timing_settings
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.metadata.image import MetadataImage


class ShareTimings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def share_timings(group_id: str, image: MetadataImage, settings: GroupCoordinatorSettings) -> ShareTimings:
    return ShareTimings(*timing_settings("share", ShareTimings._fields, group_id, image, settings))
