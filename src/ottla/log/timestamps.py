"""Finding records by timestamp: ListOffsets with a time, and with the maximal one.

The time index and the batch headers narrow it down to one batch; only that batch's records are walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.results import TimestampedOffset
from ottla.model.ids import Offset, TimestampMs
from ottla.protocol.records import BatchHeader, iterate_records

if TYPE_CHECKING:
    from ottla.log.replica_log import ReplicaLog
    from ottla.log.segment import Segment


def offset_for_timestamp(log: ReplicaLog, timestamp: TimestampMs) -> TimestampedOffset | None:
    """The first record at or after the log start whose timestamp is >= `timestamp`."""
    for segment in log.segments:
        if segment.size and segment.largest_timestamp >= timestamp:
            return _search(segment, timestamp, log.log_start_offset)
    return None


def _search(segment: Segment, timestamp: TimestampMs, start: Offset) -> TimestampedOffset | None:
    from_offset = max(segment.time_index.lookup(timestamp), start)
    for position, header in segment.headers_from(segment.offset_index.lookup(from_offset)):
        if header.max_timestamp >= timestamp and header.last_offset >= start:
            for record in iterate_records(segment.file.pread(header.size, position)):
                if record.timestamp >= timestamp and record.offset >= start:
                    return TimestampedOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def offset_of_max_timestamp(log: ReplicaLog) -> TimestampedOffset | None:
    """The first record that carries the largest timestamp of the log; None in a log without timestamps."""
    newest = max(log.segments, key=lambda segment: segment.max_timestamp)
    timestamp = newest.max_timestamp
    if timestamp < 0:
        return None
    for position, header in newest.headers_from(newest.offset_index.lookup(newest.max_timestamp_offset)):
        if header.max_timestamp == timestamp:
            return _first_with(newest, position, header)
    return None


def _first_with(segment: Segment, position: int, header: BatchHeader) -> TimestampedOffset | None:
    timestamp = header.max_timestamp
    for record in iterate_records(segment.file.pread(header.size, position)):
        if record.timestamp == timestamp:
            return TimestampedOffset(timestamp, record.offset, header.leader_epoch)
    return None
