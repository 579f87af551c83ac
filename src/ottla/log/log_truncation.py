"""The truncation of a log: from an offset on, or completely.

The order: first no file on disk may claim the records any more (notes of erasures, checkpoints). Then the offsets and
epochs go back in memory, and the files follow. A truncation that the disk interrupts stays `pending`, and
the log finishes the truncation before any other work. Each step on the files may be repeated.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.env.logging import get_logger
from ottla.log.epoch_cache import EpochCache
from ottla.log.erasure_notes import ErasureNotes
from ottla.log.file_names import LOG_SUFFIX
from ottla.log.log_offsets import LogOffsets
from ottla.log.log_roll import LogRoll
from ottla.log.log_segments import LogSegments
from ottla.log.producer_rebuild import rebuild_producer_state
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState
from ottla.model.ids import Offset, TimestampMs

_log = get_logger(__name__)


class PendingTruncation(NamedTuple):
    """A truncation whose files are not all changed yet."""

    offset: Offset
    everything: bool
    """An empty segment at `offset` takes the place of all."""
    time_ms: TimestampMs


class LogTruncation:
    __slots__ = ("_epochs", "_erasure_notes", "_offsets", "_producers", "_roll", "_segments", "_snapshots", "pending")

    def __init__(
        self,
        *,
        segments: LogSegments,
        offsets: LogOffsets,
        epochs: EpochCache,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        erasure_notes: ErasureNotes,
        roll: LogRoll,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._snapshots = snapshots
        self._erasure_notes = erasure_notes
        self._roll = roll
        self.pending: PendingTruncation | None = None

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> bool:
        """Drop everything at and after `offset`; True when that was anything."""
        end = self._offsets.log_end_offset
        if offset >= end:
            # A conflicting epoch may have been assigned at the end without any record.
            self._epochs.truncate_from_end(offset)
            self._epochs.write_changes()
            return False
        _log.info("log.truncated", partition=str(self._segments.topic_partition), offset=offset, end=end)
        if offset < self._segments.first_base_offset:
            self.start_over_at(offset, offset, now_ms)
            return True
        self._prepare(offset, offset)
        self._offsets.truncate_to(offset)
        self._epochs.truncate_from_end(offset)
        self.pending = PendingTruncation(offset, everything=False, time_ms=now_ms)
        self.finish()
        return True

    def start_over_at(self, offset: Offset, log_start_offset: Offset, now_ms: TimestampMs) -> None:
        """Empty the log and go on at `offset`. A `log_start_offset` above stays on disk: the first batch will hold it."""
        self._prepare(offset, max(offset, log_start_offset))
        self._offsets.start_over_at(offset, min(offset, log_start_offset))
        self._epochs.clear()
        self._producers.replace_by(ProducerState(offset))
        self.pending = PendingTruncation(offset, everything=True, time_ms=now_ms)
        self.finish()

    def _prepare(self, offset: Offset, log_start_offset: Offset) -> None:
        """Write what must be on disk before anything at `offset` or above is replaced: no checkpoint may cover it any
        more.

        A stale recovery point would let the next start trust what was never synced; a stale cleaner checkpoint would keep
        compaction from reading what is appended below it.
        """
        self._erasure_notes.forget_above(offset)
        self._segments.log_dir.checkpoints.lower(self._segments.topic_partition, offset, log_start_offset)

    def check_usable(self) -> None:
        """KAFKA_STORAGE_ERROR when the directory is offline, or a truncation still cannot be finished."""
        log_dir = self._segments.log_dir
        log_dir.check_online()
        if self.pending is not None:
            with log_dir.storage_errors():
                self.finish()

    def finish(self) -> None:
        """Change the files to match the state of the log in memory. OSError leaves the rest pending."""
        pending = self.pending
        if pending is None:
            return
        if pending.everything:
            self._segments.start_over_at(pending.offset, pending.time_ms)
            self._snapshots.remove_outside(pending.offset, pending.offset - 1)
        else:
            self._segments.truncate_to(pending.offset, pending.time_ms)
            self._rebuild_producers(pending)
            self._leave_plain_segment(pending.time_ms)
        self._epochs.write_changes()
        self._offsets.producers_changed()
        self.pending = None

    def _rebuild_producers(self, pending: PendingTruncation) -> None:
        start = self._offsets.log_start_offset
        self._snapshots.remove_outside(start, pending.offset)
        producers = self._producers
        producers.replace_by(
            rebuild_producer_state(
                self._snapshots, self._segments, start, pending.offset, pending.time_ms, producers.expiration_ms
            )
        )
        producers.replicated_up_to(self._offsets.high_watermark)

    def _leave_plain_segment(self, now_ms: TimestampMs) -> None:
        """With encryption at rest, an unencrypted segment gets no more records."""
        is_plain = getattr(self._segments.log_dir.storage, "is_plain", None)
        if is_plain is not None:
            active = self._segments.active
            active.forget()  # an emptied file begins again, as an encrypted one
            if is_plain(active.path(LOG_SUFFIX)):
                self._roll.at_end(now_ms)
