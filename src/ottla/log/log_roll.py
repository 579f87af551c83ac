"""The roll of a log: a new active segment, and the producer snapshot at its base offset.

Both always come together: recovery replays the producers of a segment from the snapshot at its base offset.
"""

from __future__ import annotations

from ottla.log.log_offsets import LogOffsets
from ottla.log.log_segments import LogSegments
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState
from ottla.log.segment import Segment
from ottla.model.ids import Offset, TimestampMs


class LogRoll:
    __slots__ = ("_offsets", "_producers", "_segments", "_snapshots")

    def __init__(
        self, segments: LogSegments, offsets: LogOffsets, producers: ProducerState, snapshots: ProducerSnapshots
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._producers = producers
        self._snapshots = snapshots

    def at(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        """A new segment at `base_offset`, at the log end offset if that is higher. OSError when the disk refuses."""
        segment = self._segments.roll(max(base_offset, self._offsets.log_end_offset), now_ms)
        self._producers.end_offset = segment.base_offset
        self._snapshots.write(self._producers)
        return segment

    def at_end(self, now_ms: TimestampMs) -> Segment:
        return self.at(self._offsets.log_end_offset, now_ms)
