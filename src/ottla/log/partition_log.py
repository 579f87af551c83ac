"""The log of one partition: what a leader and a follower append to and read from.

A `PartitionLog` has its parts, and no part refers to the log. The rules of each part stand in its module. State, and the
code that may change it:

- `segments` (`log_segments`): the segments in order. Append, roll, exchange, truncation.
- `offsets` (`log_offsets`): log start, high watermark, log end, recovery point. Append, flush, truncation,
  the cleaner, `partition_checkpoints`, the partition (high watermark), methods here.
- `producers` (`producer_state`): sequences and open transactions. Append, roll, truncation, promotion, expiry.
- `snapshots` (`producer_snapshots`): the `.snapshot` files. Roll, exchange, truncation, promotion, close.
- `epochs` (`epoch_cache`): leader epochs and their file. Append, truncation, promotion,
  `advance_log_start_offset`.
- `erasure_notes` (`erasure_notes`): erasures that were carried out. The eraser, truncation.
- limits (`append_limits`): the settings that an append compares with. The setter of `config`.

Steps over the state: `log_append`, `log_roll`, `log_flush`, `log_truncation`, `segment_exchange`. `aborted`
(`aborted_transactions`) reads the transaction indexes.

The order of an append: judge (validation, producer state), assign offsets in the buffer, one write, then the
in-memory state. Everything that can refuse comes before the write; an OSError leaves the log as it was. The parts let
an OSError pass; here it becomes KAFKA_STORAGE_ERROR through the log directory, which may go offline by it. Nothing here
reads the clock or starts threads: times come in as `now_ms`, blocking syncs go out as a `FlushPlan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.env.config import TopicConfig
from ottla.log import timestamps
from ottla.log.aborted_transactions import AbortedTransactions
from ottla.log.append_limits import AppendLimits
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.epoch_cache import NO_EPOCH_OFFSET, EpochCache
from ottla.log.erasure_notes import ErasureNotes
from ottla.log.log_append import LogAppend
from ottla.log.log_directory import LogDirectory
from ottla.log.log_flush import FlushPlan, LogFlush
from ottla.log.log_offsets import LogOffsets
from ottla.log.log_roll import LogRoll
from ottla.log.log_segments import LogSegments
from ottla.log.log_truncation import LogTruncation
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState, VerificationGuard
from ottla.log.results import AppendResult, LogSlice, TimestampedOffset
from ottla.log.segment import Segment
from ottla.log.segment_exchange import SegmentExchange
from ottla.log.validation import (
    FIRST_ZSTD_VERSION,
    AppendOrigin,
    ValidatedBatches,
    validate,
    validate_opaque,
    validate_produce,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP, ZERO_UUID, LeaderEpoch, Offset, TimestampMs, TopicPartition, Uuid

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CLIENT = AppendOrigin.CLIENT
_new_tuple = tuple.__new__
"""Skips the argument handling of a NamedTuple's own constructor: this is the produce path."""


class PartitionLog:
    __slots__ = (
        "_append", "_config", "_exchange", "_flush", "_roll", "_truncation", "aborted", "being_moved",
        "cleaning_refused", "directory", "discarded", "epochs", "erasure_notes", "log_dir", "offsets", "producers",
        "segments", "snapshots", "topic_id", "topic_partition", "uncleanable",
    )  # fmt: skip

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
        """From loaded parts: `recovery.load_partition_log` and `create_partition_log` put them together."""
        storage = log_dir.storage
        self.log_dir = log_dir
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = LogSegments(log_dir, directory, topic_partition, config, segments)
        self.epochs = EpochCache(storage, directory) if epochs is None else epochs
        self.producers = ProducerState(log_end_offset) if producers is None else producers
        self.offsets = LogOffsets(
            self.producers,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        self.erasure_notes = ErasureNotes(storage, directory, topic_partition.partition, erased)
        self.snapshots = ProducerSnapshots(storage, directory, []) if snapshots is None else snapshots
        self.aborted = AbortedTransactions(self.segments, self.offsets)
        self._roll = LogRoll(self.segments, self.offsets, self.producers, self.snapshots)
        self._flush = LogFlush(self.segments, self.offsets, self.epochs, self.snapshots)
        self._exchange = SegmentExchange(self.segments, self.snapshots, self._roll)
        self._truncation = LogTruncation(
            segments=self.segments,
            offsets=self.offsets,
            epochs=self.epochs,
            producers=self.producers,
            snapshots=self.snapshots,
            erasure_notes=self.erasure_notes,
            roll=self._roll,
        )
        self._append = LogAppend(
            segments=self.segments,
            offsets=self.offsets,
            epochs=self.epochs,
            producers=self.producers,
            roll=self._roll,
            truncation=self._truncation,
        )
        self._config = config
        self.discarded = False
        """The log has left the node, and its folder is about to be removed: work on the log must stop."""
        self.being_moved = False
        """A copy is made in another directory; compaction waits until the copy serves or is given up."""
        self.uncleanable = False
        """Compaction has given up on the log: something in it cannot be read."""
        self.cleaning_refused = 0
        """Greater than 0 after the disk refused a compaction or erasure: the higher, the later that was."""

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Settings are dynamic: what the append path compares with is kept ready."""
        self._config = self.segments.config = config
        self._append.limits = AppendLimits(config)

    # ------------------------------------------------------------------------------------------------ what the parts hold

    @property
    def log_start_offset(self) -> Offset:
        return self.offsets.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self.offsets.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        return self.offsets.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        return self.offsets.last_stable_offset

    @property
    def recovery_point(self) -> Offset:
        return self.offsets.recovery_point

    @property
    def generation(self) -> int:
        return self.offsets.generation

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The epoch of the last batch, -1 in an empty log."""
        return self.epochs.latest_epoch

    @property
    def active_segment(self) -> Segment:
        return self.segments.active

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """The largest epoch <= `epoch` in the log and its end offset; None when the epoch cache has no answer."""
        epoch_end = self.epochs.end_offset_for(epoch, self.offsets.log_end_offset)
        return epoch_end if epoch_end[1] != NO_EPOCH_OFFSET else None

    def check_usable(self) -> None:
        """KAFKA_STORAGE_ERROR when the directory is offline, or a truncation still cannot be finished."""
        self._truncation.check_usable()

    def out_of_range(self, offset: Offset) -> KafkaError:
        offsets = self.offsets
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {self.topic_partition} is outside "
            f"[{offsets.log_start_offset}, {offsets.log_end_offset}]",
        )

    # ------------------------------------------------------------------------------------------------ appending

    def append_as_leader(
        self,
        batches: bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        version: int = FIRST_ZSTD_VERSION,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = 0,
        validated: ValidatedBatches | None = None,
        on_loop: bool = False,
    ) -> AppendResult:
        """Validate one produced buffer (`version` is Produce's), assign its offsets and write it. `validated` holds the
        batches when a worker has validated them already. With `on_loop`, LargeWalkError means that a worker should
        validate the buffer.

        KafkaError or RecordValidationError refuses the buffer with nothing changed; KAFKA_STORAGE_ERROR means that the
        disk refused the write. `verification_guard` comes from `start_verification`, `transaction_version` from the coordinator that
        ends a transaction.
        """
        if validated is not None:
            pass
        elif origin is _CLIENT:
            limits = self._append.limits
            header = validate_opaque(batches, version, limits.opaque_bytes, now_ms + limits.timestamp_after_max_ms)
            if header is not None:
                validated = _new_tuple(ValidatedBatches, (batches, [(0, header)], NO_TIMESTAMP))
            else:
                validated = validate_produce(
                    batches, self.topic_partition, self._config, now_ms, version=version, on_loop=on_loop
                )
        else:
            validated = validate(batches, self.topic_partition, self._config, now_ms, origin=origin)
        return self._append.as_leader(validated, leader_epoch, now_ms, origin, verification_guard, transaction_version)

    def append_as_follower(
        self, batches: Buffer, *, now_ms: TimestampMs, max_leader_epoch: LeaderEpoch | None = None
    ) -> AppendResult | None:
        """Append batches that have their offsets and epochs already, as `LogAppend.as_follower` does."""
        return self._append.as_follower(batches, now_ms, max_leader_epoch)

    # ------------------------------------------------------------------------------------------------ reading

    def read(
        self, offset: Offset, max_bytes: int, *, max_offset: Offset | None = None, min_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches from the batch that holds `offset`, below `max_offset` (the log end by default).

        At most `max_bytes`, except that the first batch comes whole with `min_one_batch`. Empty at and above
        `max_offset`; OFFSET_OUT_OF_RANGE outside of the log.
        """
        offsets, log_dir = self.offsets, self.log_dir
        end = offsets.log_end_offset
        if offset > end or offset < offsets.log_start_offset:
            raise self.out_of_range(offset)
        if log_dir.offline or self._truncation.pending is not None:
            self._truncation.check_usable()
        limit = end if max_offset is None else max_offset
        try:
            return self.segments.read(offset, max_bytes, limit, end, min_one_batch=min_one_batch)
        except OSError as error:
            if self.discarded:
                # The log's files are being removed: the error is no fault of the disk.
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has left this log"
                ) from error
            raise log_dir.storage_error(error) from error

    def offset_for_timestamp(
        self, timestamp: TimestampMs, start: Offset = 0, *, on_loop: bool = False
    ) -> TimestampedOffset | None:
        """The first record whose timestamp is >= `timestamp`, from the log start; None when there is none. `start` and
        `on_loop` as in `ottla.log.timestamps`."""
        self._truncation.check_usable()
        with self.log_dir.storage_errors():
            return timestamps.offset_for_timestamp(
                self.segments, timestamp, max(start, self.offsets.log_start_offset), on_loop=on_loop
            )

    def offset_of_max_timestamp(self, *, on_loop: bool = False) -> TimestampedOffset | None:
        self._truncation.check_usable()
        with self.log_dir.storage_errors():
            return timestamps.offset_of_max_timestamp(self.segments, on_loop=on_loop)

    # ------------------------------------------------------------------------------------------------ watermarks

    def advance_high_watermark(self, offset: Offset) -> bool:
        return self.offsets.advance_high_watermark(offset)

    def advance_log_start_offset(self, offset: Offset) -> bool:
        """Hide what is below `offset`; the files go with `delete_old_segments`. Not above the high watermark."""
        self._truncation.check_usable()
        offsets = self.offsets
        if offset > offsets.high_watermark:
            raise self.out_of_range(offset)
        if offset <= offsets.log_start_offset:
            return False
        offsets.advance_log_start_offset(offset)
        self.epochs.truncate_from_start(offset)
        try:
            self.epochs.write_changes()
        except OSError as error:
            # A load trims the file again: a full disk must not stop what makes room.
            self.log_dir.storage_error(error)
        return True

    # ------------------------------------------------------------------------------------------------ syncing

    def prepare_flush(self, up_to: Offset | None = None) -> FlushPlan | None:
        """What must be synced for the recovery point to reach `up_to` (the log end by default); None for nothing."""
        self._truncation.check_usable()
        end = self.offsets.log_end_offset if up_to is None else up_to
        if end <= self.offsets.recovery_point or self.discarded:
            return None
        with self.log_dir.storage_errors():
            self.epochs.write_changes()
            return self._flush.plan(end)

    def flushed(self, plan: FlushPlan, now_ms: TimestampMs) -> None:
        """`plan.sync()` returned."""
        self._flush.done(plan, now_ms)

    def flush_failed(self, error: OSError) -> KafkaError:
        """`plan.sync()` raised: returns the refusal, and sets the directory offline unless a descriptor was missing."""
        self._flush.failed(error)
        return self.log_dir.storage_error(error)

    def flush(self, now_ms: TimestampMs, up_to: Offset | None = None) -> None:
        """Sync here and now, for callers that may block."""
        plan = self.prepare_flush(up_to)
        if plan is not None:
            self._sync(plan, now_ms)

    def flush_with(self, paths: Sequence[str], now_ms: TimestampMs) -> None:
        """Sync the whole log and `paths`, even when the recovery point is at the log end. Blocks."""
        with self.log_dir.storage_errors():
            plan = self._flush.plan(self.offsets.log_end_offset, *paths)
        self._sync(plan, now_ms)

    def _sync(self, plan: FlushPlan, now_ms: TimestampMs) -> None:
        try:
            plan.sync()
        except OSError as error:
            raise self.flush_failed(error) from error
        self._flush.done(plan, now_ms)

    def flush_due(self, now_ms: TimestampMs) -> bool:
        return self._flush.due(now_ms)

    def close(self) -> FlushPlan | None:
        """Write what is only in memory; a clean shutdown then syncs the plan. None when all is on disk already."""
        if self.log_dir.offline:
            self.forget()
            return None
        self._truncation.check_usable()
        with self.log_dir.storage_errors():
            return self._flush.closing_plan(self.producers)

    def forget(self) -> None:
        """Let the files go as they are."""
        self.segments.forget()

    # ------------------------------------------------------------------------------------------------ segments

    def roll(self, now_ms: TimestampMs) -> Segment:
        """Start a new segment at the log end offset, with a producer snapshot there."""
        self._truncation.check_usable()
        with self.log_dir.storage_errors():
            return self._roll.at_end(now_ms)

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> bool:
        """Drop everything at and after `offset`; True when that was anything."""
        self._truncation.check_usable()
        with self.log_dir.storage_errors():
            return self._truncation.truncate_to(offset, now_ms)

    def truncate_fully_and_start_at(
        self, offset: Offset, now_ms: TimestampMs, *, log_start_offset: Offset | None = None
    ) -> None:
        """Empty the log and go on at `offset`: a follower whose leader starts later, or whose first batch begins below
        `log_start_offset`.
        """
        self._truncation.check_usable()
        with self.log_dir.storage_errors():
            self._truncation.start_over_at(offset, offset if log_start_offset is None else log_start_offset, now_ms)

    def skip_to(self, offset: Offset, now_ms: TimestampMs) -> None:
        """End the log at `offset` without a batch there, in a new segment: compaction removed the last batches."""
        if offset <= self.offsets.log_end_offset:
            return
        self._truncation.check_usable()
        last = self.segments.active
        with self.log_dir.storage_errors():
            self._roll.at(offset, now_ms)
            self.offsets.log_end_offset = offset
            if last.size == 0:
                # An empty segment before the last one would mean that its batches were lost.
                self.segments.replace([], [last])
                self.segments.delete_files(last, now_ms)

    def delete_segments(self, oldest: Sequence[Segment], now_ms: TimestampMs) -> int:
        """Take the oldest segments out of the log, and raise the log start offset to the first that is left."""
        if not oldest:
            return 0
        self._truncation.check_usable()
        offsets, segments = self.offsets, self.segments
        before = segments.first_base_offset
        try:
            with self.log_dir.storage_errors():
                return self._exchange.delete_oldest(oldest, now_ms)
        finally:
            first = segments.first_base_offset
            if first != before and not self.log_dir.offline:
                self.advance_log_start_offset(max(offsets.log_start_offset, min(first, offsets.high_watermark)))

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Replace segments by compacted segments, as `SegmentExchange.replace` does."""
        self._truncation.check_usable()
        with self.log_dir.storage_errors():
            self._exchange.replace(new, old, now_ms)

    def finish_exchange(self) -> None:
        with self.log_dir.storage_errors():
            self._exchange.finish()

    # ------------------------------------------------------------------------------------------------ the folder

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Write `partition.metadata`; INCONSISTENT_TOPIC_ID when the folder belongs to another topic."""
        if self.topic_id not in (topic_id, ZERO_UUID):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if self.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
            with self.log_dir.storage_errors():
                write_partition_metadata(self.log_dir.storage, self.directory, topic_id)
            self.topic_id = topic_id

    def rename_directory(self, directory: str) -> None:
        with self.log_dir.storage_errors():
            self.segments.flush_indexes()
            self.log_dir.storage.rename(self.directory, directory)
        self.directory = directory
        self.segments.moved_to(directory)
        self.epochs.directory = self.snapshots.directory = self.erasure_notes.directory = directory
