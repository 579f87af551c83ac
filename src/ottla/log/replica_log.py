"""What a replica keeps about its log beyond the bytes: watermarks, leader epochs, producers; and its upkeep.

Rolling, syncing, truncating, deleting and closing happen here; appending and reading in `partition_log`. Offsets:
log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset and recovery_point <= log_end_offset. An
OSError becomes KAFKA_STORAGE_ERROR through the log directory, which may go offline by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from ottla.env.config import TopicConfig
from ottla.env.logging import get_logger
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.epoch_cache import NO_EPOCH_OFFSET, EpochCache
from ottla.log.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from ottla.log.local_log import FlushPlan, LocalLog
from ottla.log.log_directory import LogDirectory
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


class _Exchange(NamedTuple):
    """Segments that have left the log and still have their names, and those in their place, `.swap` perhaps."""

    old: list[Segment]
    new: list[Segment]
    time_ms: TimestampMs


class ReplicaLog(LocalLog):
    __slots__ = (
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
        self._epochs = epochs or EpochCache()
        self.producers = producers or ProducerState(log_end_offset)
        self._snapshots = snapshots or ProducerSnapshots(log_dir.storage, directory, [])
        self._first_unstable = self.producers.first_unstable_offset()
        self._exchange: _Exchange | None = None
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
        """Move the high watermark to `offset`, within the log; True when it changed. It may go back only by
        truncation or a new leader's word."""
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
        """The largest epoch <= `epoch` in the log and where it ends; None when the log cannot tell."""
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
        self.log_dir.check_online()
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
        self.log_dir.check_online()
        end = self.log_end_offset if up_to is None else up_to
        if end <= self.recovery_point or self.discarded:
            return None
        try:
            return self._flush_plan(end, self._unsynced_paths())
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def _unsynced_paths(self) -> list[str]:
        """Files beside the segments that were written since the recovery point moved last."""
        paths = [self._snapshots.path(offset) for offset in self._snapshots.offsets if offset > self.recovery_point]
        if self.recovery_point <= self._bases[0]:
            paths.append(f"{self.directory}/{PARTITION_METADATA}")
        if self._epochs.dirty:
            # Either the plan is synced or the directory goes offline: there is no third way to remember.
            self._epochs.dirty = False
            paths.append(f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}")
        return paths

    def flushed(self, plan: FlushPlan, now_ms: TimestampMs) -> None:
        """`plan.sync()` came back; when the log was truncated meanwhile, the plan says nothing about what it has now."""
        if plan.generation == self._generation:
            self.recovery_point = max(self.recovery_point, plan.offset)
        self.last_flushed_ms = now_ms

    def flush_failed(self, error: OSError) -> KafkaError:
        """After a failed sync the kernel may have dropped the pages: nothing on this directory is certain any more."""
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
        self.log_dir.check_online()
        try:
            if offset >= self.log_end_offset:
                # A conflicting epoch may have been assigned at the end without any record.
                self._epochs_changed(self._epochs.truncate_from_end(offset))
                return False
            _log.info("log.truncated", partition=str(self.topic_partition), offset=offset, end=self.log_end_offset)
            if offset < self._bases[0]:
                self._restart_at(offset, offset, now_ms)
            else:
                self._truncate_segments(offset, now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        return True

    @property
    def generation(self) -> int:
        """Another number after every truncation: what was read before it may not be in the log any more."""
        return self._generation

    def note_erased(self, entries: Sequence[str]) -> None:
        """These erasures are carried out in all that the log has now. OSError when that cannot be written."""
        from ottla.log.erasure_notes import write_erasure_notes  # rare, and a node must start fast

        write_erasure_notes(self.log_dir.storage, self.directory, entries)
        self.erased = tuple(entries)

    def _forget_erasures_above(self, offset: Offset) -> None:
        """What is fetched again may hold erased values again; on disk before anything is cut."""
        if self.erased:
            from ottla.log.erasure_notes import notes_below

            kept = notes_below(self.erased, self.topic_partition.partition, offset)
            if kept != self.erased:
                self.note_erased(kept)

    def _truncate_segments(self, offset: Offset, now_ms: TimestampMs) -> None:
        self._forget_erasures_above(offset)
        keep = self.floor_segment(offset)
        # The recovery point goes first: a crash in between must find everything above it re-checked.
        self.recovery_point = min(self.recovery_point, offset)
        self._generation += 1
        self._delete_files(self._take_out(self._segments[keep + 1 :]), now_ms)
        self._active.truncate_to(offset, now_ms)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self._epochs_changed(self._epochs.truncate_from_end(offset))
        self._snapshots.remove_outside(self.log_start_offset, offset)
        self.producers = rebuild_producer_state(
            self._snapshots, self._segments, self.log_start_offset, offset, now_ms, self.producer_id_expiration_ms
        )
        self._producers_changed()
        self.high_watermark = min(self.high_watermark, offset)

    def truncate_fully_and_start_at(
        self, offset: Offset, now_ms: TimestampMs, *, log_start_offset: Offset | None = None
    ) -> None:
        """Empty the log and go on at `offset`: a follower whose leader starts later, or a snapshot was loaded."""
        self.log_dir.check_online()
        try:
            self._restart_at(offset, offset if log_start_offset is None else log_start_offset, now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def _restart_at(self, offset: Offset, log_start_offset: Offset, now_ms: TimestampMs) -> None:
        self._forget_erasures_above(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._generation += 1
        self._delete_files(self._take_out(list(self._segments)), now_ms)
        self._add(self._new_segment(offset, now_ms))
        self.log_end_offset = self.recovery_point = offset
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self._epochs_changed(self._epochs.clear())
        self._snapshots.remove_outside(offset, offset - 1)
        self.producers = ProducerState(offset)
        self._producers_changed()

    def _epochs_changed(self, changed: bool) -> None:  # noqa: FBT001 - the answer of the cache's own methods
        if changed:
            self._epochs.write(self.log_dir.storage, self.directory)

    def _producers_changed(self) -> None:
        self._first_unstable = self.producers.first_unstable_offset()

    # ------------------------------------------------------------------------------------------------ deleting

    def advance_log_start_offset(self, offset: Offset) -> bool:
        """Hide what is below `offset`; the files go with `delete_old_segments`. Not above the high watermark."""
        self.log_dir.check_online()
        if offset > self.high_watermark:
            raise self.out_of_range(offset, self.log_start_offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        try:
            self._epochs_changed(self._epochs.truncate_from_start(offset))
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        self.producers.replicated_up_to(offset)
        self._producers_changed()
        return True

    def delete_segments(self, segments: Sequence[Segment], now_ms: TimestampMs) -> int:
        """Take the oldest segments out of the log; when all go, an empty one at the log end takes their place."""
        if not segments:
            return 0
        self.log_dir.check_online()
        try:
            if len(segments) == len(self._segments):
                self._roll_at(self.log_end_offset, now_ms)
            gone = self._take_out(segments)
            self._delete_files(gone, now_ms)
            self._delete_snapshots(gone, now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        self.advance_log_start_offset(max(self.log_start_offset, min(self._bases[0], self.high_watermark)))
        return len(gone)

    def _delete_snapshots(self, segments: Sequence[Segment], now_ms: TimestampMs) -> None:
        marked = (self._snapshots.mark_deleted(segment.base_offset) for segment in segments)
        self.log_dir.delete_later(
            [path for path in marked if path is not None], now_ms + self._config.file_delete_delay_ms
        )

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Put compacted segments (`.cleaned` files, complete) in the place of those they were made from.

        First all are `.swap`, last base first: a crash or an error before that point drops the new ones. From there on
        they are the log's, by whatever name; a load finishes the exchange, and so does `finish_exchange` where the disk
        had no room.
        """
        self.log_dir.check_online()
        self.finish_exchange()
        self._make_ready(new)
        self._exchange = _Exchange(self._take_out(old), list(new), now_ms)
        self._segments = sorted([*self._segments, *new], key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self._active = self._segments[-1]
        self.finish_exchange()

    def _make_ready(self, new: Sequence[Segment]) -> None:
        try:
            for segment in sorted(new, key=lambda segment: segment.base_offset, reverse=True):
                segment.finish_indexes()
                segment.forget()
                segment.rename(SWAP_SUFFIX)
        except OSError as error:
            refusal = self.log_dir.storage_error(error)
            with contextlib.suppress(OSError):  # the next start removes what cannot be removed now
                for segment in new:
                    segment.remove_files()
            raise refusal from error

    def finish_exchange(self) -> None:
        """What is left of the last exchange; before the next `.cleaned` file, beside which a `.swap` means another."""
        exchange = self._exchange
        if exchange is None:
            return
        kept = {segment.base_offset for segment in exchange.new}
        try:
            while exchange.old:
                segment = exchange.old[0]
                self._delete_files([segment], exchange.time_ms)
                if segment.base_offset not in kept:
                    self._delete_snapshots([segment], exchange.time_ms)
                del exchange.old[0]
            for segment in exchange.new:
                if segment.suffix == SWAP_SUFFIX:  # it may have been deleted meanwhile
                    segment.forget()
                    segment.rename("")
            self.log_dir.storage.sync_dir(self.directory)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        self._exchange = None

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
        try:
            new_snapshot = self._snapshots.write(self.producers)
            self._active.finish_indexes()
            if self.recovery_point == self.log_end_offset and (new_snapshot is None or not self.producers.producers):
                # The log is synced, and a snapshot of no producers is as good as none.
                return None
            # The offset index only saves time: what a power cut takes from it is found again by reading.
            active = [self._active.path(kind) for kind in (TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)]
            return self._flush_plan(self.log_end_offset, [*self._unsynced_paths(), *active])
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def forget(self) -> None:
        """Let the files go as they are."""
        for segment in self._segments:
            segment.forget()

    def _assign_epochs(self, starts: list[tuple[LeaderEpoch, Offset]]) -> None:
        changed = False
        for epoch, offset in starts:
            if epoch >= 0:
                changed |= self._epochs.assign(epoch, offset)
        if changed:
            self._epochs.write(self.log_dir.storage, self.directory)
