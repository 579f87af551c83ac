"""The segments of one log in the order of their base offsets: finding, reading, rolling and removing them.

There is always an active segment, the last one, and only it grows. This module handles offsets and bytes; producers,
leader epochs and watermarks belong to other parts of the log. OSError passes through: after it, the list agrees with
the files that still have their names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from ottla.env.config import TopicConfig
from ottla.env.logging import get_logger
from ottla.log.file_names import DELETED_SUFFIX, SEGMENT_SUFFIXES
from ottla.log.log_directory import LogDirectory
from ottla.log.results import LogSlice
from ottla.log.segment import Segment
from ottla.model.ids import Offset, TimestampMs, TopicPartition

_log = get_logger(__name__)


class LogSegments(Sequence[Segment]):
    __slots__ = ("_bases", "_segments", "active", "config", "directory", "log_dir", "topic_partition")

    def __init__(
        self,
        log_dir: LogDirectory,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        segments: Sequence[Segment],
    ) -> None:
        if not segments:
            raise ValueError(f"{directory}: a log has at least one segment")
        self.log_dir = log_dir
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        """The settings in force: jitter of new segments, delay of deletions."""
        self._put(segments)

    def _put(self, segments: Iterable[Segment]) -> None:
        self._segments = sorted(segments, key=_base_offset_of)
        self._bases = [segment.base_offset for segment in self._segments]
        if self._segments:
            self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...

    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    # ------------------------------------------------------------------------------------------------ finding

    @property
    def first_base_offset(self) -> Offset:
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: Offset) -> int:
        """The number of the segment whose base offset is the largest <= `offset`; -1 below the first."""
        if offset >= self.active.base_offset:
            return len(self._segments) - 1
        return bisect_right(self._bases, offset) - 1

    def from_offset(self, offset: Offset) -> list[Segment]:
        """The segment that holds `offset` and all later ones."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def between(self, start: Offset, end: Offset) -> list[Segment]:
        """The segments that may hold offsets of [start, end), from the segment that holds `start` on."""
        return [segment for segment in self.from_offset(start) if segment.base_offset < end]

    def offset_after(self, read: LogSlice, log_end_offset: Offset) -> Offset:
        """An offset at or after the end of the slice, by the offset index: not below the offsets of the slice."""
        number = bisect_right(self._bases, read.segment_base_offset) - 1
        offset = self._segments[number].offset_index.offset_at_or_after(read.position + read.length)
        if offset is not None:
            return offset
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    # ------------------------------------------------------------------------------------------------ reading

    def read(
        self, offset: Offset, max_bytes: int, max_offset: Offset, log_end_offset: Offset, *, min_one_batch: bool
    ) -> LogSlice:
        """Whole batches from the batch that holds `offset`, below `max_offset`; empty at and above `max_offset`."""
        number = len(self._segments) - 1 if offset >= self.active.base_offset else self.floor(offset)
        if offset >= max_offset:
            return LogSlice(None, 0, 0, offset, self._bases[max(number, 0)])
        segments = self._segments
        while number < len(segments):
            segment = segments[number]
            position = segment.position_of(offset)
            if position is not None:
                end = segment.size if max_offset >= log_end_offset else self._end_position(number, max_offset)
                length = self._fitting(segment, position, end, max_bytes, min_one_batch=min_one_batch)
                shared = segment.shared_file() if length else None
                return LogSlice(shared, position, length, offset, segment.base_offset)
            # Compaction may have removed everything up to the segment's end.
            number += 1
        return LogSlice(None, 0, 0, offset, self.active.base_offset)

    def _end_position(self, number: int, max_offset: Offset) -> int:
        """Where the bytes below `max_offset` end in the segment."""
        segment = self._segments[number]
        if number + 1 < len(self._bases) and max_offset >= self._bases[number + 1]:
            return segment.size
        position = segment.position_of(max_offset)
        return segment.size if position is None else position

    @staticmethod
    def _fitting(segment: Segment, position: int, end: int, max_bytes: int, *, min_one_batch: bool) -> int:
        """How many bytes of whole batches from `position` fit: all, as many as `max_bytes` takes, or just one."""
        if end - position <= max_bytes:
            return max(end - position, 0)
        fitting = segment.whole_batches_end(position, position + max_bytes)[0] - position
        if fitting == 0 and min_one_batch:
            header = next((header for _, header in segment.headers_from(position)), None)
            return min(header.size, end - position) if header is not None else 0
        return fitting

    # ------------------------------------------------------------------------------------------------ changing

    def create(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        """A new segment with its empty files, not yet in the log."""
        log_dir, config = self.log_dir, self.config
        segment = Segment(log_dir.storage, log_dir.open_files, self.directory, base_offset, created_ms=now_ms)
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        if jitter > 0 and log_dir.random is not None:
            segment.roll_jitter_ms = int(log_dir.random.uniform(0, jitter))
        segment.create()
        return segment

    def roll(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        """A new active segment. On OSError the old one stays active."""
        if self.active.base_offset == base_offset:
            return self.active
        self.active.finish_indexes()
        segment = self.create(base_offset, now_ms)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        _log.debug("segment.rolled", partition=str(self.topic_partition), base_offset=base_offset)
        return segment

    def replace(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Put `new` in the place of `old` in the list; the files stay as they are."""
        gone = {segment.base_offset for segment in old}
        self._put([*(segment for segment in self._segments if segment.base_offset not in gone), *new])

    def delete(self, segment: Segment, now_ms: TimestampMs) -> None:
        """Take a segment out of the log: its files, then the list."""
        self.delete_files(segment, now_ms)
        self.replace([], [segment])

    def delete_files(self, segment: Segment, now_ms: TimestampMs) -> None:
        """Rename to `.deleted`; the files go after `file.delete.delay.ms`, when no reader can be on them any more."""
        segment.forget()
        segment.rename(DELETED_SUFFIX)
        self.delete_later([segment.path(kind) for kind in SEGMENT_SUFFIXES], now_ms)

    def delete_later(self, paths: list[str], now_ms: TimestampMs) -> None:
        self.log_dir.delete_later(paths, now_ms + self.config.file_delete_delay_ms)

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Drop all batches that end at or after `offset`. May be repeated after an OSError."""
        for segment in reversed(self._segments[self.floor(offset) + 1 :]):
            self.delete(segment, now_ms)
        self.active.truncate_to(offset, now_ms)

    def start_over_at(self, offset: Offset, now_ms: TimestampMs) -> None:
        """An empty segment at `offset` takes the place of all. May be repeated after an OSError: the old segments stay
        in the list until the new segment exists.
        """
        for segment in self._segments:
            if segment.suffix != DELETED_SUFFIX:
                self.delete_files(segment, now_ms)
        self._put([self.create(offset, now_ms)])

    def flush_indexes(self) -> None:
        for segment in self._segments:
            segment.flush_indexes()

    def moved_to(self, directory: str) -> None:
        self.directory = directory
        for segment in self._segments:
            segment.moved_to(directory)

    def forget(self) -> None:
        """Let the files go as they are."""
        for segment in self._segments:
            segment.forget()


def _base_offset_of(segment: Segment) -> Offset:
    return segment.base_offset
