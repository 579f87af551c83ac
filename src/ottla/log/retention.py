"""Which old segments may go: by log start offset always, by size and age where `cleanup.policy` has `delete`.

Pure choices over a log's segments, oldest first, never past the high watermark; `delete_old_segments` acts on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ottla.env.logging import get_logger
from ottla.log.segment import Segment
from ottla.model.ids import Offset, TimestampMs

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

_log = get_logger(__name__)

Choice: TypeAlias = "Callable[[PartitionLog, TimestampMs], list[Segment]]"


def delete_old_segments(log: PartitionLog, now_ms: TimestampMs) -> int:
    """One pass of retention; returns how many segments were taken out."""
    deleted = 0
    reasons: list[tuple[str, Choice]] = [("log_start_offset", below_log_start)]
    if log.config.delete:
        reasons += [("retention.bytes", beyond_size), ("retention.ms", beyond_age)]
    for reason, choose in reasons:
        segments = choose(log, now_ms)
        if segments:
            bases = [segment.base_offset for segment in segments]
            deleted += log.delete_segments(segments, now_ms)
            _log.info("segments.deleted", partition=str(log.topic_partition), reason=reason, base_offsets=bases)
    return deleted


def below_log_start(log: PartitionLog, _now_ms: TimestampMs) -> list[Segment]:
    start = log.log_start_offset
    return _oldest(log, lambda _segment, following: following is not None and following <= start)


def beyond_size(log: PartitionLog, _now_ms: TimestampMs) -> list[Segment]:
    limit = log.config.retention_bytes
    surplus = log.size_bytes - limit
    if limit < 0 or surplus < 0:
        return []

    def goes(segment: Segment, _following: Offset | None) -> bool:
        nonlocal surplus
        if surplus - segment.size < 0:
            return False
        surplus -= segment.size
        return True

    return _oldest(log, goes)


def beyond_age(log: PartitionLog, now_ms: TimestampMs) -> list[Segment]:
    limit = log.config.retention_ms
    if limit < 0:
        return []
    return _oldest(log, lambda segment, _following: now_ms - segment.largest_timestamp > limit)


def _oldest(log: PartitionLog, goes: Callable[[Segment, Offset | None], bool]) -> list[Segment]:
    """The segments from the oldest on for which `goes` holds, up to the high watermark; an empty last one stays."""
    chosen: list[Segment] = []
    segments = log.segments
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        upper = log.log_end_offset if following is None else following
        if log.high_watermark < upper or not goes(segment, following):
            break
        if following is None and segment.size == 0:
            break
        chosen.append(segment)
    return chosen
