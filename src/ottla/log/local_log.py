"""The segments of one partition as one log: finding, reading, rolling, syncing and dropping them.

This module handles offsets and bytes; producers, leaders and watermarks belong to `partition_log`. There is always an
active segment, the last one, and only it grows. OSError passes through; `PartitionLog` turns it into the directory's
failure.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ottla.env.config import TopicConfig
from ottla.env.logging import get_logger
from ottla.env.seams import Storage
from ottla.log.file_names import DELETED_SUFFIX, INDEX_SUFFIXES, SEGMENT_SUFFIXES
from ottla.log.log_directory import LogDirectory
from ottla.log.open_files import SharedFile
from ottla.log.results import LogSlice
from ottla.log.segment import Segment
from ottla.log.validation import as_it_is_limit
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Offset, TimestampMs, TopicPartition

_log = get_logger(__name__)


class FlushPlan:
    """What has to reach the disk before the recovery point may move to `offset`.

    `sync` is the blocking part: it touches nothing of the log and may run in a thread. Hand the plan to
    `PartitionLog.flushed` afterwards.
    """

    __slots__ = ("_directories", "_files", "_paths", "_storage", "generation", "offset")

    def __init__(
        self,
        storage: Storage,
        offset: Offset,
        generation: int,
        files: list[SharedFile],
        paths: list[str],
        directories: list[str],
    ) -> None:
        self._storage = storage
        self._files = files
        self._paths = paths
        self._directories = directories
        self.offset = offset
        self.generation = generation

    def sync(self) -> None:
        """OSError means that the directory is failing: give it to `PartitionLog.flush_failed`.

        A name that is gone is not a failure: the segment or the whole partition was deleted meanwhile.
        """
        for shared in self._files:
            shared.file.sync()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                file = self._storage.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                self._storage.sync_dir(directory)


class LocalLog:
    __slots__ = (
        "_active",
        "_as_it_is_bytes",
        "_bases",
        "_config",
        "_flush_messages",
        "_future_ms",
        "_generation",
        "_index_bytes",
        "_index_interval",
        "_segment_bytes",
        "_segment_ms",
        "_segments",
        "being_moved",
        "cleaned_up_to",
        "cleaning_refused",
        "directory",
        "discarded",
        "last_flushed_ms",
        "log_dir",
        "log_end_offset",
        "recovery_point",
        "topic_partition",
        "uncleanable",
    )

    def __init__(
        self,
        log_dir: LogDirectory,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        segments: Sequence[Segment],
        log_end_offset: Offset,
        recovery_point: Offset,
    ) -> None:
        if not segments:
            raise ValueError(f"{directory}: a log has at least one segment")
        self.log_dir = log_dir
        self.directory = directory
        self.topic_partition = topic_partition
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self._active = self._segments[-1]
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.last_flushed_ms: TimestampMs = 0
        self.discarded = False
        """The log has left the node, and its folder is about to be removed: work on the log must stop."""
        self.being_moved = False
        """A copy is made in another directory; compaction waits until the copy serves or is given up."""
        self.cleaned_up_to: Offset = 0
        """Compaction has cleaned everything below this offset; `cleaner-offset-checkpoint` stores it."""
        self.uncleanable = False
        """Compaction has given up on the log: something in it cannot be read."""
        self.cleaning_refused = 0
        """Greater than 0 after the disk refused a compaction or erasure: the higher, the later that was."""
        self._generation = 0
        """Counts truncations: a sync that began before a truncation does not cover bytes written after the truncation.
        """
        self.config = config

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Settings are dynamic: what the append path compares with is kept ready."""
        self._config = config
        self._segment_bytes = config.internal_segment_bytes or config.segment_bytes
        self._segment_ms = config.segment_ms
        self._flush_messages = config.flush_messages
        self._index_bytes = config.segment_index_bytes
        self._index_interval = config.index_interval_bytes
        self._as_it_is_bytes = as_it_is_limit(config)
        self._future_ms = config.message_timestamp_after_max_ms

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def active_segment(self) -> Segment:
        return self._active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def floor_segment(self, offset: Offset) -> int:
        """The number of the segment whose base offset is the largest <= `offset`; -1 below the first."""
        if offset >= self._active.base_offset:
            return len(self._segments) - 1
        return bisect_right(self._bases, offset) - 1

    def segments_between(self, start: Offset, end: Offset) -> list[Segment]:
        """The segments that may hold offsets of [start, end), from the segment that holds `start` on."""
        first = max(self.floor_segment(start), 0)
        return [segment for segment in self._segments[first:] if segment.base_offset < end]

    # ------------------------------------------------------------------------------------------------ reading

    def _read(self, offset: Offset, max_bytes: int, max_offset: Offset, *, min_one_batch: bool) -> LogSlice:
        number = self.floor_segment(offset)
        if offset >= max_offset:
            return LogSlice(None, 0, 0, offset, self._bases[max(number, 0)])
        segments = self._segments
        while number < len(segments):
            segment = segments[number]
            position = segment.position_of(offset)
            if position is not None:
                end = self._end_position(number, max_offset)
                length = self._fitting(segment, position, end, max_bytes, min_one_batch=min_one_batch)
                shared = segment.shared_file() if length else None
                return LogSlice(shared, position, length, offset, segment.base_offset)
            # Compaction may have removed everything up to the segment's end.
            number += 1
        return LogSlice(None, 0, 0, offset, self._active.base_offset)

    def _end_position(self, number: int, max_offset: Offset) -> int:
        """Where the bytes below `max_offset` end in the segment."""
        segment = self._segments[number]
        if max_offset >= self.log_end_offset:
            return segment.size
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

    # ------------------------------------------------------------------------------------------------ rolling

    def _new_segment(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        log_dir = self.log_dir
        segment = Segment(log_dir.storage, log_dir.open_files, self.directory, base_offset, created_ms=now_ms)
        jitter = min(self._config.segment_jitter_ms, self._config.segment_ms)
        if jitter > 0 and log_dir.random is not None:
            segment.roll_jitter_ms = int(log_dir.random.uniform(0, jitter))
        segment.create()
        return segment

    def _roll(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        """A new active segment. On OSError the old one stays active."""
        old = self._active
        if old.base_offset == base_offset:
            return old
        old.finish_indexes()
        segment = self._new_segment(base_offset, now_ms)
        self._add(segment)
        _log.debug("segment.rolled", partition=str(self.topic_partition), base_offset=base_offset)
        return segment

    def _add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment

    def _take_out(self, segments: Iterable[Segment]) -> list[Segment]:
        """Remove segments from the list only; never the active one unless another follows."""
        gone = list(segments)
        bases = {segment.base_offset for segment in gone}
        self._segments = [segment for segment in self._segments if segment.base_offset not in bases]
        self._bases = [segment.base_offset for segment in self._segments]
        if self._segments:
            self._active = self._segments[-1]
        return gone

    def _delete_files(self, segments: Iterable[Segment], now_ms: TimestampMs) -> None:
        """Rename to `.deleted`; the files go after `file.delete.delay.ms`, when no reader can be on them any more."""
        for segment in segments:
            segment.forget()
            segment.rename(DELETED_SUFFIX)
            paths = [segment.path(kind) for kind in SEGMENT_SUFFIXES]
            self.log_dir.delete_later(paths, now_ms + self._config.file_delete_delay_ms)

    # ------------------------------------------------------------------------------------------------ syncing

    def _flush_plan(self, up_to: Offset, paths: list[str]) -> FlushPlan:
        """Sync the segments that hold [recovery_point, up_to), the files `paths` and the names of new files."""
        touched = self.segments_between(self.recovery_point, up_to)
        new_names = bool(paths)
        for segment in touched:
            segment.flush_indexes()
            new_names |= segment.base_offset >= self.recovery_point
            if segment is not self._active:
                # Recovery rebuilds the active segment's indexes; those of older ones are trusted.
                paths += [segment.path(kind) for kind in INDEX_SUFFIXES]
        directories = [self.directory] if new_names else []
        if new_names and self.recovery_point <= self._bases[0]:
            # Never synced before: the folder's own name may not be on disk either.
            directories.append(self.log_dir.path)
        files = [segment.shared_file() for segment in touched]
        return FlushPlan(self.log_dir.storage, up_to, self._generation, files, paths, directories)

    def _moved_to(self, directory: str) -> None:
        self.directory = directory
        for segment in self._segments:
            segment.moved_to(directory)

    def out_of_range(self, offset: Offset, start: Offset) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {self.topic_partition} is outside [{start}, {self.log_end_offset}]",
        )
