"""How often members of a share group report, how long they may be silent, and how often the group is assigned."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, MetadataImage


class ShareTimings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def share_timings(group_id: str, image: MetadataImage, settings: GroupCoordinatorSettings) -> ShareTimings:
    """The group's own settings within the broker's limits; without one the broker's, or the cluster's if dynamic."""
    own = image.configs.get((RESOURCE_GROUP, group_id), {})
    cluster = image.configs.get((RESOURCE_BROKER, ""), {})

    def value(attribute: str) -> int:
        name = attribute.replace("_", ".")
        text = own.get(f"share.{name}")
        if text is not None:
            low = int(getattr(settings, f"group_share_min_{attribute}"))
            return min(max(int(text), low), int(getattr(settings, f"group_share_max_{attribute}")))
        inherited = cluster.get(f"group.share.{name}") if attribute == "assignment_interval_ms" else None
        return int(getattr(settings, f"group_share_{attribute}")) if inherited is None else int(inherited)

    return ShareTimings(*(value(attribute) for attribute in ShareTimings._fields))
