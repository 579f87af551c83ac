"""Finding records by timestamp: ListOffsets with a time, and with the maximal one.

The time index and the batch headers narrow it down to one batch; only that batch's records are walked. The times in a
header may be wrong, so that several batches are walked without a result. On the loop (`on_loop`), LargeSearchError
returns a batch with many records, or a batch after several small ones. The caller walks that batch elsewhere and
continues after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.log.results import TimestampedOffset
from ottla.log.validation_records import LOOP_BYTES, LOOP_RECORDS
from ottla.model.ids import Offset, TimestampMs
from ottla.protocol.compression import MAX_DECOMPRESSED_BYTES, TooLargeError
from ottla.protocol.records import BatchHeader, iterate_records, parse_header

if TYPE_CHECKING:
    from ottla.log.segment import Segment

_LOOP_BATCHES = 10
"""How many small batches without a result are walked on the loop."""


class LargeSearchError(Exception):
    """A batch that must be walked elsewhere, by `find`; without a result, the search continues at `next_offset`."""

    def __init__(self, find: Callable[[], TimestampedOffset | None], next_offset: Offset) -> None:
        super().__init__(next_offset)
        self.find = find
        self.next_offset = next_offset


def offset_for_timestamp(
    segments: Iterable[Segment], timestamp: TimestampMs, start: Offset, *, on_loop: bool = False
) -> TimestampedOffset | None:
    """The first record at or after the offset `start` whose timestamp is >= `timestamp`."""
    for segment in segments:
        if segment.size and segment.largest_timestamp >= timestamp:
            return _search(segment, timestamp, start, on_loop=on_loop)
    return None


def _search(segment: Segment, timestamp: TimestampMs, start: Offset, *, on_loop: bool) -> TimestampedOffset | None:
    from_offset = max(segment.time_index.lookup(timestamp), start)
    walked = 0
    for position, header in segment.headers_from(segment.offset_index.lookup(from_offset)):
        if header.max_timestamp >= timestamp and header.last_offset >= start:
            data = segment.file.pread(header.size, position)
            walked += 1
            small = on_loop and walked <= _LOOP_BATCHES
            timestamped_offset = _find(
                partial(_at_or_after, data, timestamp, start), header, on_loop=on_loop, small=small
            )
            if timestamped_offset is not None:
                return timestamped_offset
    return None


def offset_of_max_timestamp(segments: Iterable[Segment], *, on_loop: bool = False) -> TimestampedOffset | None:
    """The first record that carries the largest timestamp of the log; None in a log without timestamps."""
    newest = max(segments, key=lambda segment: segment.max_timestamp)
    timestamp = newest.max_timestamp
    if timestamp < 0:
        return None
    for position, header in newest.headers_from(newest.offset_index.lookup(newest.max_timestamp_offset)):
        if header.max_timestamp == timestamp:
            data = newest.file.pread(header.size, position)
            return _find(partial(_with_max, data), header, on_loop=on_loop, small=on_loop)
    return None


_Find = Callable[[int], TimestampedOffset | None]


def _find(find: _Find, header: BatchHeader, *, on_loop: bool, small: bool) -> TimestampedOffset | None:
    if not on_loop:
        return find(MAX_DECOMPRESSED_BYTES)
    large = LargeSearchError(partial(find, MAX_DECOMPRESSED_BYTES), header.next_offset)
    if not small or header.record_count > LOOP_RECORDS or header.size > LOOP_BYTES:
        raise large
    try:
        return find(LOOP_BYTES)
    except TooLargeError:
        raise large from None


def _at_or_after(data: bytes, timestamp: TimestampMs, start: Offset, limit: int) -> TimestampedOffset | None:
    for record in iterate_records(data, limit=limit):
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampedOffset(record.timestamp, record.offset, parse_header(data, 0).leader_epoch)
    return None


def _with_max(data: bytes, limit: int) -> TimestampedOffset | None:
    header = parse_header(data, 0)
    for record in iterate_records(data, limit=limit):
        if record.timestamp == header.max_timestamp:
            return TimestampedOffset(record.timestamp, record.offset, header.leader_epoch)
    return None
