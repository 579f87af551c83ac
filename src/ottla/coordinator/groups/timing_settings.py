"""The timings of one kind of group (`consumer`, `share`) for one group: each group may set its own.

A group's setting (ConfigResource GROUP) is held within the broker's limits. Without such a setting the broker's own
setting counts, and for the dynamic `assignment.interval.ms` the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, MetadataImage

_DYNAMIC = "assignment_interval_ms"


def timing_settings(
    kind: str, attributes: Iterable[str], group_id: str, image: MetadataImage, settings: GroupCoordinatorSettings
) -> Iterator[int]:
    own = image.configs.get((RESOURCE_GROUP, group_id), {})
    cluster = image.configs.get((RESOURCE_BROKER, ""), {})
    for attribute in attributes:
        name = attribute.replace("_", ".")
        text = own.get(f"{kind}.{name}")
        if text is not None:
            low = int(getattr(settings, f"group_{kind}_min_{attribute}"))
            yield min(max(int(text), low), int(getattr(settings, f"group_{kind}_max_{attribute}")))
            continue
        inherited = cluster.get(f"group.{kind}.{name}") if attribute == _DYNAMIC else None
        yield int(getattr(settings, f"group_{kind}_{attribute}")) if inherited is None else int(inherited)
