"""The limits of deliveries in a share group: its own settings (ConfigResource GROUP) within the broker's limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.coordinator.share.in_flight import InFlightLimits
from ottla.metadata.image import RESOURCE_GROUP
from ottla.replication.partition import READ_COMMITTED, READ_UNCOMMITTED

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane
    from ottla.replication.partition import Partition

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?", re.IGNORECASE)
_BY_DURATION = "by_duration:"


def limits(broker: NodePlane, group_id: str) -> InFlightLimits:
    return InFlightLimits(
        _bounded(broker, group_id, "delivery_count_limit"),
        _bounded(broker, group_id, "partition_max_record_locks"),
        _own(broker, group_id, "renew.acknowledge.enable", "true").strip().lower() == "true",
    )


def record_lock_duration_ms(broker: NodePlane, group_id: str) -> int:
    return _bounded(broker, group_id, "record_lock_duration_ms")


def isolation_level(broker: NodePlane, group_id: str) -> int:
    committed = _own(broker, group_id, "isolation.level", "read_uncommitted").strip().lower() == "read_committed"
    return READ_COMMITTED if committed else READ_UNCOMMITTED


def first_offset(broker: NodePlane, group_id: str, partition: Partition) -> int:
    """Where the group begins on a partition that it has not read."""
    reset = _own(broker, group_id, "auto.offset.reset", "latest").strip().lower()
    if reset == "earliest":
        return partition.log.log_start_offset
    if reset.startswith(_BY_DURATION):
        since = broker.clock.time_ms() - _duration_ms(reset.removeprefix(_BY_DURATION))
        record = partition.log.offset_for_timestamp(since)
        if record is not None and record.offset < partition.high_watermark:
            return record.offset
    return partition.high_watermark


def _own(broker: NodePlane, group_id: str, name: str, default: str) -> str:
    return broker.image.configs.get((RESOURCE_GROUP, group_id), {}).get(f"share.{name}", default)


def _bounded(broker: NodePlane, group_id: str, attribute: str) -> int:
    config = broker.config
    text = _own(broker, group_id, attribute.replace("_", "."), "")
    if not text:
        return int(getattr(config, f"group_share_{attribute}"))
    low = int(getattr(config, f"group_share_min_{attribute}"))
    return min(max(int(text), low), int(getattr(config, f"group_share_max_{attribute}")))


def _duration_ms(text: str) -> int:
    """An ISO 8601 duration, as java.time.Duration reads it; the setting's own check has accepted it."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    fraction_ms = int((match.group(5) or "0").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
