"""What a replica keeps about its log beyond the bytes: watermarks, leader epochs, producers; and its upkeep.

Rolling, syncing, truncating and closing happen here, segments leave in `segment_exchange`, appending and reading happen
in `partition_log`. Offsets: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset and
recovery_point <= log_end_offset. An OSError becomes KAFKA_STORAGE_ERROR through the log directory, which may go offline
by it. A truncation that the disk interrupts is finished before the log is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.env.config import TopicConfig
from ottla.env.logging import get_logger
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.epoch_cache import NO_EPOCH_OFFSET, EpochCache
from ottla.log.file_names import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from ottla.log.local_log import FlushPlan, LocalLog
from ottla.log.log_directory import LogDirectory, lacks_descriptors
from ottla.log.producer_rebuild import rebuild_producer_state
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState, Verification
from ottla.log.results import ActiveProducer
from ottla.log.segment import Segment
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import (
    ZERO_UUID,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    Uuid,
)

_log = get_logger(__name__)

DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000


class Exchange(NamedTuple):
    """Segments that have left the log and still have their names, and those in their place, `.swap` perhaps."""

    old: list[Segment]
    new: list[Segment]
    time_ms: TimestampMs


class _Cut(NamedTuple):
    """A truncation whose files are not all changed yet: the log finishes the truncation before any other work."""

    offset: Offset
    everything: bool
    """An empty segment at `offset` takes the place of all."""
    time_ms: TimestampMs


class ReplicaLog(LocalLog):
    __slots__ = (
        "_cut",
        "_epochs",
        "_exchange",
        "_first_unstable",
        "_snapshots",
        "erased",
        "high_watermark",
        "log_start_offset",
        "producer_id_expiration_ms",
        "producers",
        "topic_id",
        "verification_enabled",
    )

    def __init__(
        self,
        log_dir: LogDirectory,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        segments: Sequence[Segment],
        *,
        log_end_offset: Offset,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
        topic_id: Uuid = ZERO_UUID,
        epochs: EpochCache | None = None,
        producers: ProducerState | None = None,
        snapshots: ProducerSnapshots | None = None,
        erased: tuple[str, ...] = (),
    ) -> None:
        """From loaded parts: `recovery.load` and `create_partition_log` put them together."""
        super().__init__(log_dir, directory, topic_partition, config, segments, log_end_offset, recovery_point)
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self._epochs = EpochCache() if epochs is None else epochs
        self.producers = ProducerState(log_end_offset) if producers is None else producers
        self._snapshots = ProducerSnapshots(log_dir.storage, directory, []) if snapshots is None else snapshots
        self._first_unstable = self.producers.first_unstable_offset()
        self._cut: _Cut | None = None
        self._exchange: Exchange | None = None
        self.erased = erased
        """Entries of `ottla.encryption.forget` that were carried out here."""
        self.producer_id_expiration_ms = DEFAULT_PRODUCER_ID_EXPIRATION_MS
        self.verification_enabled = False
        """`transaction.partition.verification.enable`: a transaction's first batch must show its guard."""

    # ------------------------------------------------------------------------------------------------ watermarks

    @property
    def last_stable_offset(self) -> Offset:
        """What read_committed may see: below the first open transaction and the high watermark."""
        first = self._first_unstable
        if 0 <= first < self.high_watermark:
            return max(first, self.log_start_offset)
        return self.high_watermark

    @property
    def first_unstable_offset(self) -> Offset:
        """-1 without a transaction that is open or not yet replicated."""
        return self._first_unstable

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Move the high watermark to `offset`, within the log; True when it changed. The high watermark goes back only
        by truncation or when a new leader sends a lower one.
        """
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        if self._first_unstable >= 0:
            self.producers.replicated_up_to(offset)
            self._first_unstable = self.producers.first_unstable_offset()
        return True

    # ------------------------------------------------------------------------------------------------ epochs

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The epoch of the last batch, -1 in an empty log."""
        return self._epochs.latest_epoch

    @property
    def epochs(self) -> EpochCache:
        return self._epochs

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """The largest epoch <= `epoch` in the log and its end offset; None when the epoch cache has no answer."""
        found = self._epochs.end_offset_for(epoch, self.log_end_offset)
        return found if found[1] != NO_EPOCH_OFFSET else None

    # ------------------------------------------------------------------------------------------------ producers

    def active_producers(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for producer_id, entry in self.producers.producers.items()
        ]

    def start_verification(
        self,
        producer_id: ProducerId,
        sequence: int,
        epoch: ProducerEpoch,
        now_ms: TimestampMs,
        *,
        supports_epoch_bump: bool = False,
    ) -> Verification | None:
        return self.producers.start_verification(
            producer_id, sequence, epoch, now_ms, supports_epoch_bump=supports_epoch_bump
        )

    def remove_expired_producers(self, now_ms: TimestampMs) -> int:
        return self.producers.remove_expired(now_ms, self.producer_id_expiration_ms)

    # ------------------------------------------------------------------------------------------------ rolling

    def roll(self, now_ms: TimestampMs) -> Segment:
        """Start a new segment at the log end offset, with a producer snapshot there."""
        self._check_usable()
        try:
            return self._roll_at(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def _roll_at(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        segment = self._roll(max(base_offset, self.log_end_offset), now_ms)
        self.producers.end_offset = segment.base_offset
        self._snapshots.write(self.producers)
        return segment

    # ------------------------------------------------------------------------------------------------ syncing

    def prepare_flush(self, up_to: Offset | None = None) -> FlushPlan | None:
        """What must be synced for the recovery point to reach `up_to` (the log end by default); None for nothing."""
        self._check_usable()
        end = self.log_end_offset if up_to is None else up_to
        if end <= self.recovery_point or self.discarded:
            return None
        try:
            self._write_epochs()
            return self._plan(end)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def _unsynced_paths(self) -> list[str]:
        """Files beside the segments that were written since the recovery point moved last."""
        paths = [self._snapshots.path(offset) for offset in self._snapshots.offsets if offset > self.recovery_point]
        if self.recovery_point <= self._bases[0]:
            paths.append(f"{self.directory}/{PARTITION_METADATA}")
        if self._epochs.dirty:
            paths.append(f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}")
        return paths

    def _plan(self, end: Offset, *paths: str) -> FlushPlan:
        """A plan with all unsynced files and `paths`. After an OSError there is no plan, and the next plan has the same
        files.
        """
        plan = self._flush_plan(end, list(dict.fromkeys([*self._unsynced_paths(), *paths])))
        self._epochs.dirty = False  # the plan is synced, or `flush_failed` is called
        return plan

    def flushed(self, plan: FlushPlan, now_ms: TimestampMs) -> None:
        """`plan.sync()` returned. The recovery point stays if the log was truncated meanwhile: the plan does not cover
        the new content.
        """
        if plan.generation == self._generation:
            self.recovery_point = max(self.recovery_point, plan.offset)
        self.last_flushed_ms = now_ms

    def flush_failed(self, error: OSError) -> KafkaError:
        """After a failed sync the kernel may have dropped the pages: nothing on this directory is certain any more.

        Without a free descriptor there was no sync: the recovery point stays, and a later plan has the same files.
        """
        if lacks_descriptors(error):
            self._epochs.dirty = True
        else:
            self.log_dir.fail(error)
        return self.log_dir.storage_error(error)

    def flush(self, now_ms: TimestampMs, up_to: Offset | None = None) -> None:
        """Sync here and now, for callers that may block."""
        plan = self.prepare_flush(up_to)
        if plan is None:
            return
        try:
            plan.sync()
        except OSError as error:
            raise self.flush_failed(error) from error
        self.flushed(plan, now_ms)

    def flush_due(self, now_ms: TimestampMs) -> bool:
        """`flush.ms` has passed since the last sync and there is something to sync."""
        return self.recovery_point < self.log_end_offset and now_ms - self.last_flushed_ms >= self._config.flush_ms

    # ------------------------------------------------------------------------------------------------ truncating

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> bool:
        """Drop everything at and after `offset`; True when that was anything."""
        self._check_usable()
        try:
            if offset >= self.log_end_offset:
                # A conflicting epoch may have been assigned at the end without any record.
                self._epochs.truncate_from_end(offset)
                self._write_epochs()
                return False
            _log.info("log.truncated", partition=str(self.topic_partition), offset=offset, end=self.log_end_offset)
            if offset < self._bases[0]:
                self._restart_at(offset, offset, now_ms)
            else:
                self._cut_at(offset, now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        return True

    @property
    def generation(self) -> int:
        """A number that changes with every truncation: records read before the change may have left the log."""
        return self._generation

    def note_erased(self, entries: Sequence[str]) -> None:
        """These erasures are carried out in all that the log has now. OSError when that cannot be written."""
        from ottla.log.erasure_notes import write_erasure_notes  # rare, and a node must start fast

        write_erasure_notes(self.log_dir.storage, self.directory, entries)
        self.erased = tuple(entries)

    def _forget_erasures_above(self, offset: Offset) -> None:
        """Remove the notes above `offset` from disk before the truncation: fetched records may hold erased values
        again.
        """
        if self.erased:
            from ottla.log.erasure_notes import notes_below

            kept = notes_below(self.erased, self.topic_partition.partition, offset)
            if kept != self.erased:
                self.note_erased(kept)

    def _before_cut(self, offset: Offset) -> None:
        """Write what must be on disk before anything at `offset` or above is replaced: no checkpoint may cover it any
        more.

        A stale recovery point would let the next start trust what was never synced; a stale cleaner checkpoint would keep
        compaction from reading what is appended below it.
        """
        self._forget_erasures_above(offset)
        self.log_dir.checkpoints.lower(self.topic_partition, offset)
        self.cleaned_up_to = min(self.cleaned_up_to, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._generation += 1

    def _cut_at(self, offset: Offset, now_ms: TimestampMs) -> None:
        self._before_cut(offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._epochs.truncate_from_end(offset)
        self._cut = _Cut(offset, everything=False, time_ms=now_ms)
        self._finish_cut(self._cut)

    def _finish_cut(self, cut: _Cut) -> None:
        """Change the files to match the state of the log in memory. Each step may be repeated."""
        if cut.everything:
            self._empty_segments(cut)
        else:
            self._cut_segments(cut)
        self._write_epochs()
        self._producers_changed()
        self._cut = None

    def _cut_segments(self, cut: _Cut) -> None:
        offset, now_ms = cut.offset, cut.time_ms
        for segment in reversed(self._segments[self.floor_segment(offset) + 1 :]):
            self._delete_files([segment], now_ms)
            self._take_out([segment])
        self._active.truncate_to(offset, now_ms)
        self._snapshots.remove_outside(self.log_start_offset, offset)
        self.producers = rebuild_producer_state(
            self._snapshots, self._segments, self.log_start_offset, offset, now_ms, self.producer_id_expiration_ms
        )
        self.producers.replicated_up_to(self.high_watermark)
        self._leave_plain_segment(now_ms)

    def _leave_plain_segment(self, now_ms: TimestampMs) -> None:
        """With encryption at rest, an unencrypted segment gets no more records."""
        is_plain = getattr(self.log_dir.storage, "is_plain", None)
        if is_plain is not None:
            self._active.forget()  # an emptied file begins again, as an encrypted one
            if is_plain(self._active.path(LOG_SUFFIX)):
                self._roll_at(self.log_end_offset, now_ms)

    def _empty_segments(self, cut: _Cut) -> None:
        """The old segments stay in the list until the new segment exists: a log has at least one segment."""
        old = list(self._segments)
        self._delete_files([segment for segment in old if segment.suffix != DELETED_SUFFIX], cut.time_ms)
        new = self._new_segment(cut.offset, cut.time_ms)
        self._take_out(old)
        self._add(new)
        self._snapshots.remove_outside(cut.offset, cut.offset - 1)

    def _check_usable(self) -> None:
        """KAFKA_STORAGE_ERROR when the directory is offline, or a truncation still cannot be finished."""
        self.log_dir.check_online()
        if self._cut is not None:
            try:
                self._finish_cut(self._cut)
            except OSError as error:
                raise self.log_dir.storage_error(error) from error

    def truncate_fully_and_start_at(
        self, offset: Offset, now_ms: TimestampMs, *, log_start_offset: Offset | None = None
    ) -> None:
        """Empty the log and go on at `offset`: a follower whose leader starts later, or a snapshot was loaded."""
        self._check_usable()
        try:
            self._restart_at(offset, offset if log_start_offset is None else log_start_offset, now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def _restart_at(self, offset: Offset, log_start_offset: Offset, now_ms: TimestampMs) -> None:
        self._before_cut(offset)
        self.log_end_offset = self.recovery_point = offset
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self.cleaned_up_to = 0
        self._epochs.clear()
        self.producers = ProducerState(offset)
        self._cut = _Cut(offset, everything=True, time_ms=now_ms)
        self._finish_cut(self._cut)

    def _write_epochs(self) -> None:
        if self._epochs.unwritten:
            self._epochs.write(self.log_dir.storage, self.directory)

    def _producers_changed(self) -> None:
        self._first_unstable = self.producers.first_unstable_offset()

    # ------------------------------------------------------------------------------------------------ deleting

    def advance_log_start_offset(self, offset: Offset) -> bool:
        """Hide what is below `offset`; the files go with `delete_old_segments`. Not above the high watermark."""
        self._check_usable()
        if offset > self.high_watermark:
            raise self.out_of_range(offset, self.log_start_offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        try:
            self._write_epochs()
        except OSError as error:
            # A load trims the file again: a full disk must not stop what makes room.
            self.log_dir.storage_error(error)
        self.producers.replicated_up_to(offset)
        self._producers_changed()
        return True

    # ------------------------------------------------------------------------------------------------ the folder

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Write `partition.metadata`; INCONSISTENT_TOPIC_ID when the folder belongs to another topic."""
        if self.topic_id not in (topic_id, ZERO_UUID):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if self.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
            try:
                write_partition_metadata(self.log_dir.storage, self.directory, topic_id)
            except OSError as error:
                raise self.log_dir.storage_error(error) from error
            self.topic_id = topic_id

    def rename_directory(self, directory: str) -> None:
        try:
            for segment in self._segments:
                segment.flush_indexes()
            self.log_dir.storage.rename(self.directory, directory)
            self._moved_to(directory)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        self._snapshots.directory = directory

    def close(self) -> FlushPlan | None:
        """Write what is only in memory; a clean shutdown then syncs the plan. None when all is on disk already."""
        if self.log_dir.offline:
            self.forget()
            return None
        self._check_usable()
        try:
            self._write_epochs()
            new_snapshot = self._snapshots.write(self.producers)
            self._active.finish_indexes()
            if self.recovery_point == self.log_end_offset and (new_snapshot is None or not self.producers.producers):
                # The log is synced, and a snapshot of no producers is as good as none.
                return None
            # The offset index only saves time: what a power cut takes from it is found again by reading.
            active = [self._active.path(kind) for kind in (TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)]
            return self._plan(self.log_end_offset, *active)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def forget(self) -> None:
        """Let the files go as they are."""
        for segment in self._segments:
            segment.forget()

    def _assign_epochs(self, starts: list[tuple[LeaderEpoch, Offset]]) -> None:
        """Note epochs before their first batch is written. After an OSError the cache is what it was."""
        before = self._epochs.entries
        for epoch, offset in starts:
            if epoch >= 0:
                self._epochs.assign(epoch, offset)
        try:
            self._write_epochs()
        except OSError:
            self._epochs.restore(before)
            raise
