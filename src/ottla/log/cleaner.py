"""Which log is compacted next, and how far each is clean.

The dirtiest log goes first: the share of its bytes that lie after its checkpoint, above min.cleanable.dirty.ratio, or
any log with a record older than max.compaction.lag.ms. Not cleanable are the active segment, whatever is at or above
the last stable offset, and segments younger than min.compaction.lag.ms. How far a log is clean stands in the log itself
and, for the next start, in its directory's `cleaner-offset-checkpoint`. A log whose data cannot be read is left alone
until the node restarts. A log whose disk refused goes behind all others.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import count
from typing import NamedTuple

from ottla.env.logging import get_logger
from ottla.env.seams import Clock
from ottla.log.compaction import CleanerStats, LogChangedError, Moved, OnlineLogs, compact
from ottla.log.compaction_output import BlockingSync
from ottla.log.file_names import CLEANER_CHECKPOINT
from ottla.log.partition_checkpoints import offsets_of
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Offset, TimestampMs

_log = get_logger(__name__)

DEFAULT_DEDUPE_BUFFER_BYTES = 128 * 1024 * 1024
DEFAULT_LOAD_FACTOR = 0.9


class LogToClean(NamedTuple):
    log: PartitionLog
    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    """The base offset of the first segment that has to wait."""
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool
    """A record is older than max.compaction.lag.ms."""

    @property
    def cleanable_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def worth_it(self) -> bool:
        if self.cleanable_bytes == 0:
            return False
        return self.overdue or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


class Cleaner:
    __slots__ = ("_clock", "_logs", "_refusals", "dedupe_buffer_bytes", "load_factor", "moved")

    def __init__(
        self,
        logs: OnlineLogs,
        clock: Clock,
        *,
        dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES,
        load_factor: float = DEFAULT_LOAD_FACTOR,
    ) -> None:
        """log.cleaner.dedupe.buffer.size and log.cleaner.io.buffer.load.factor; both may be set later."""
        self._logs = logs
        self._clock = clock
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self.load_factor = load_factor
        self.moved = Moved()
        self._refusals = count(1)

    def clean_next(self) -> Generator[BlockingSync | None, None, CleanerStats | None]:
        """Compact the dirtiest log, in slices as `compact` does; yields nothing when no log is dirty enough."""
        chosen = self.choose()
        if chosen is None:
            return None
        log = chosen.log
        memory = int(self.dedupe_buffer_bytes * self.load_factor)
        try:
            stats = yield from compact(
                log,
                chosen.first_dirty_offset,
                chosen.first_uncleanable_offset,
                clock=self._clock,
                memory_bytes=memory,
                moved=self.moved,
            )
            self._note_cleaned(log, stats.end_offset)
        except LogChangedError:
            _log.info("compaction.abandoned", partition=str(log.topic_partition))
            return None
        except OSError as error:
            log.cleaning_refused = next(self._refusals)
            raise log.log_dir.storage_error(error) from error
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                log.cleaning_refused = next(self._refusals)
                raise  # the disk's: a later round may find space
            log.uncleanable = True
            _log.error("compaction.failed", partition=str(log.topic_partition), error=error.message)
            return None
        log.cleaning_refused = 0
        _log.info("log.compacted", partition=str(log.topic_partition), **stats._asdict())
        return stats

    def choose(self) -> LogToClean | None:
        """The dirtiest log that is dirty enough for a pass; a log whose disk refused a pass comes last."""
        now_ms = self._clock.time_ms()
        candidates = [self._candidate(log, now_ms) for log in self._logs.online_logs()]
        worthy = [candidate for candidate in candidates if candidate is not None and candidate.worth_it]
        return max(
            worthy, key=lambda candidate: (-candidate.log.cleaning_refused, candidate.cleanable_ratio), default=None
        )

    def _candidate(self, log: PartitionLog, now_ms: TimestampMs) -> LogToClean | None:
        if not log.config.compact or len(log.segments) <= 1 or log.uncleanable or log.being_moved:
            return None
        try:
            return self.to_clean(log, now_ms)
        except OSError as error:
            log.log_dir.storage_error(error)
            return None

    def to_clean(self, log: PartitionLog, now_ms: TimestampMs) -> LogToClean:
        first_dirty = self.first_dirty_offset(log)
        uncleanable = first_uncleanable_offset(log, first_dirty, now_ms)
        # A segment that the last pass ended inside of is dirty as a whole.
        dirty = log.segments.between(first_dirty, uncleanable) if first_dirty < uncleanable else []
        start = dirty[0].base_offset if dirty else first_dirty
        clean = sum(segment.size for segment in log.segments if segment.base_offset < start)
        cleanable = sum(segment.size for segment in dirty)
        return LogToClean(log, first_dirty, uncleanable, clean, cleanable, _is_overdue(log, first_dirty, now_ms))

    def first_dirty_offset(self, log: PartitionLog) -> Offset:
        """How far the log is clean, or the log start where that is not known."""
        offset = log.offsets.cleaned_up_to
        return offset if log.log_start_offset <= offset <= log.log_end_offset else log.log_start_offset

    def _note_cleaned(self, log: PartitionLog, end_offset: Offset) -> None:
        log.offsets.cleaned_up_to = end_offset
        offsets = offsets_of(CLEANER_CHECKPOINT, log.log_dir, self._logs.online_logs())
        log.log_dir.checkpoints.write(CLEANER_CHECKPOINT, offsets)


def first_uncleanable_offset(log: PartitionLog, first_dirty: Offset, now_ms: TimestampMs) -> Offset:
    """The base offset of the first segment that may not be touched; never a place inside of a segment."""
    bound = min(log.last_stable_offset, log.active_segment.base_offset)
    lag_ms = max(log.config.min_compaction_lag_ms, 0)
    if lag_ms > 0:
        for segment in log.segments.between(first_dirty, bound):
            if segment.largest_timestamp > now_ms - lag_ms:
                bound = min(bound, segment.base_offset)
                break
    return log.segments[max(log.segments.floor(bound), 0)].base_offset


def _is_overdue(log: PartitionLog, first_dirty: Offset, now_ms: TimestampMs) -> bool:
    lag_ms = max(log.config.max_compaction_lag_ms, log.config.min_compaction_lag_ms)
    oldest = now_ms - lag_ms
    if oldest <= 0:
        return False
    dirty = log.segments.between(first_dirty, log.active_segment.base_offset)
    return any(0 < segment.first_timestamp < oldest for segment in dirty)
