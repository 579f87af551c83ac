"""The log of one partition: what a leader and a follower append to and read from.

The order of an append: judge (validation, producer state), assign offsets in the buffer, one write, then the
in-memory state. Everything that can refuse comes before the write; an OSError leaves the log as it was. Nothing here
reads the clock or starts threads: times come in as `now_ms`, blocking syncs go out as a `FlushPlan`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from ottla.log import timestamps
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.log.log_directory import lacks_descriptors
from ottla.log.producer_rebuild import end_transaction, marker_of
from ottla.log.producer_state import Verification
from ottla.log.results import AppendResult, LogSlice, TimestampedOffset
from ottla.log.segment import Segment
from ottla.log.segment_exchange import SegmentExchange
from ottla.log.transaction_index import AbortedTxn, collect_aborted
from ottla.log.validation import (
    FIRST_ZSTD_VERSION,
    AppendOrigin,
    ValidatedBatches,
    analyze_replicated,
    as_it_is,
    validate,
    validate_produce,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition
from ottla.protocol.records_header import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

_IN_TRANSACTION = TRANSACTIONAL_MASK | CONTROL_MASK
_CLIENT = AppendOrigin.CLIENT
_assign = Struct(">qii").pack_into
_new_tuple = tuple.__new__
"""Skips the argument handling of a NamedTuple's own constructor: this is the produce path."""


class UnexpectedAppendOffsetError(KafkaError):
    """A follower was given batches that begin below its log end offset."""

    def __init__(self, partition: TopicPartition, first_offset: Offset, log_end_offset: Offset) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Unexpected offset in append to {partition}: {first_offset} is below the log end offset {log_end_offset}",
        )
        self.first_offset = first_offset


class PartitionLog(SegmentExchange):
    __slots__ = ()

    # ------------------------------------------------------------------------------------------------ appending

    def append_as_leader(
        self,
        batches: bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        version: int = FIRST_ZSTD_VERSION,
        guard: Verification | None = None,
        transaction_version: int = 0,
        validated: ValidatedBatches | None = None,
        on_loop: bool = False,
    ) -> AppendResult:
        """Validate one produced buffer (`version` is Produce's), assign its offsets and write it. `validated` holds the
        batches when a worker has validated them already. With `on_loop`, LargeWalkError means that a worker should
        validate the buffer.

        KafkaError or RecordValidationError refuses the buffer with nothing changed; KAFKA_STORAGE_ERROR means that the
        disk refused the write. `guard` comes from `start_verification`, `transaction_version` from the coordinator that
        ends a transaction.
        """
        if validated is not None:
            pass
        elif origin is _CLIENT:
            header = as_it_is(batches, version, self._as_it_is_bytes, now_ms + self._future_ms)
            if header is not None:
                validated = _new_tuple(ValidatedBatches, (batches, [(0, header)], NO_TIMESTAMP))
            else:
                validated = validate_produce(
                    batches, self.topic_partition, self._config, now_ms, version=version, on_loop=on_loop
                )
        else:
            validated = validate(batches, self.topic_partition, self._config, now_ms, origin=origin)
        return self.append_validated(validated, leader_epoch, now_ms, origin, guard, transaction_version)

    def append_validated(
        self,
        validated: ValidatedBatches,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        buf, batches, append_time = validated
        first_offset = next_offset = self.log_end_offset
        for position, header in batches:
            if header.producer_id >= 0 and not self.producers.follows(header):
                if origin is _CLIENT:
                    earlier = self.producers.duplicate_of(header)
                    if earlier is not None:
                        timestamp = earlier.timestamp
                        return AppendResult(
                            earlier.first_offset, earlier.last_offset, timestamp, timestamp, 0, True, False
                        )
                self._judge(buf, position, header, origin, guard, transaction_version)
            # Base offset and leader epoch in one go, the length between them as it stands; none is under the CRC.
            _assign(buf, position, next_offset, header.batch_length, leader_epoch)
            next_offset += header.last_offset_delta + 1
        size = self._write(buf, batches, first_offset, next_offset - 1, leader_epoch, now_ms)
        max_timestamp = batches[0][1].max_timestamp
        if len(batches) > 1:
            max_timestamp = max(header.max_timestamp for _, header in batches)
        flush_due = next_offset - self.recovery_point >= self._flush_messages
        return _new_tuple(
            AppendResult, (first_offset, next_offset - 1, append_time, max_timestamp, size, False, flush_due)
        )

    def append_as_follower(
        self, batches: Buffer, *, now_ms: TimestampMs, max_leader_epoch: LeaderEpoch | None = None
    ) -> AppendResult | None:
        """Append batches that have their offsets and epochs already: from a leader, or the raft log's own.

        A batch that is cut off at the end, or of a later epoch than `max_leader_epoch`, is left out; None when nothing
        remains. UnexpectedAppendOffsetError when the batches begin below the log end offset.
        """
        parsed = analyze_replicated(batches, self.topic_partition)
        if max_leader_epoch is not None:
            for number, (_, header) in enumerate(parsed):
                if header.leader_epoch > max_leader_epoch:
                    del parsed[number:]
                    break
        if not parsed:
            return None
        first_offset = parsed[0][1].base_offset
        if first_offset < self.log_end_offset:
            raise UnexpectedAppendOffsetError(self.topic_partition, first_offset, self.log_end_offset)
        last_position, last = parsed[-1]
        with memoryview(batches) as view, view.cast("B")[: last_position + last.size] as whole:
            size = self._write(whole, parsed, first_offset, last.last_offset, None, now_ms)
        max_timestamp = max(header.max_timestamp for _, header in parsed)
        flush_due = self.log_end_offset - self.recovery_point >= self._flush_messages
        return AppendResult(first_offset, last.last_offset, NO_TIMESTAMP, max_timestamp, size, False, flush_due)

    def _judge(
        self,
        buf: Buffer,
        position: int,
        header: BatchHeader,
        origin: AppendOrigin,
        guard: Verification | None,
        transaction_version: int,
    ) -> None:
        if header.attributes & CONTROL_MASK:
            marker, _ = marker_of(buf, position)
            if marker is not None:
                self.producers.check_marker(header, marker, transaction_version)
        else:
            self.producers.check(header, origin, guard, verification_enabled=self.verification_enabled)

    def _write(
        self,
        buf: Buffer,
        batches: list[tuple[int, BatchHeader]],
        first_offset: Offset,
        last_offset: Offset,
        leader_epoch: LeaderEpoch | None,
        now_ms: TimestampMs,
    ) -> int:
        """One write for all batches, then the state that follows from it. `leader_epoch` None: each has its own."""
        log_dir = self.log_dir
        if log_dir.offline or self._cut is not None:
            self._check_usable()
        size = len(buf)  # type: ignore[arg-type]
        segment = self._active
        try:
            start = segment.size
            if start and segment.should_roll(
                size, self._segment_bytes, self._segment_ms, self._index_bytes, last_offset, batches[-1][1], now_ms
            ):
                segment = self._roll_at(first_offset, now_ms)
                start = segment.size
            epochs = self._epochs
            if leader_epoch is not None:
                if leader_epoch != epochs.latest_epoch or epochs.unwritten:
                    self._assign_epochs([(leader_epoch, first_offset)])
            else:
                latest = epochs.latest_epoch
                if batches[0][1].leader_epoch != latest or batches[-1][1].leader_epoch != latest or epochs.unwritten:
                    self._assign_epochs([(header.leader_epoch, header.base_offset) for _, header in batches])
            if not segment.ready:
                segment.make_ready()
            segment.write(buf, size)
        except OSError as error:
            if leader_epoch is None:
                self._epochs.truncate_from_end(self.log_end_offset)
            raise log_dir.storage_error(error) from error
        # From here the bytes stand: nothing below may refuse them.
        self.log_end_offset = last_offset + 1
        try:
            offset = first_offset
            for position, header in batches:
                if leader_epoch is None:
                    offset = header.base_offset
                end = offset + header.last_offset_delta
                segment.note_batch(start + position, end, header, self._index_interval)
                if header.producer_id >= 0:
                    if header.attributes & _IN_TRANSACTION:
                        self._note_transactional(segment, buf, position, header, offset)
                    else:
                        self.producers.update(header, offset)
                offset = end + 1
        except OSError as error:
            log_dir.fail(error)
            raise log_dir.storage_error(error) from error
        self.producers.end_offset = last_offset + 1
        return size

    def _note_transactional(
        self, segment: Segment, buf: Buffer, position: int, header: BatchHeader, offset: Offset
    ) -> None:
        producers = self.producers
        if header.attributes & CONTROL_MASK:
            completed = end_transaction(producers, header, buf, position, offset)
            if completed is not None:
                stable = producers.complete(completed)
                if completed.aborted:
                    producer_id, first, last, _ = completed
                    segment.note_aborted(AbortedTxn(producer_id, first, last, stable))
        else:
            producers.update(header, offset)
        self._first_unstable = producers.first_unstable_offset()

    # ------------------------------------------------------------------------------------------------ reading

    def read(
        self, offset: Offset, max_bytes: int, *, max_offset: Offset | None = None, min_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, below `max_offset` (the log end by default).

        At most `max_bytes`, except that the first batch comes whole with `min_one_batch`. Empty at and above
        `max_offset`; OFFSET_OUT_OF_RANGE outside of the log.
        """
        if offset > self.log_end_offset or offset < self.log_start_offset:
            raise self.out_of_range(offset, self.log_start_offset)
        log_dir = self.log_dir
        if log_dir.offline or self._cut is not None:
            self._check_usable()
        limit = self.log_end_offset if max_offset is None else max_offset
        try:
            return self._read(offset, max_bytes, limit, min_one_batch=min_one_batch)
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
        return self._looked_up(lambda: timestamps.offset_for_timestamp(self, timestamp, start, on_loop=on_loop))

    def offset_of_max_timestamp(self, *, on_loop: bool = False) -> TimestampedOffset | None:
        return self._looked_up(lambda: timestamps.offset_of_max_timestamp(self, on_loop=on_loop))

    def _looked_up(self, lookup: Callable[[], TimestampedOffset | None]) -> TimestampedOffset | None:
        self._check_usable()
        try:
            return lookup()
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def aborted_within(self, found: LogSlice, start: Offset) -> list[AbortedTxn]:
        """The aborted transactions that a read_committed reader of `found` needs, from `start` on. As in Kafka, the
        offset index gives the end of the slice, so that a fetch does not list a long backlog.
        """
        for segment in self._segments[max(self.floor_segment(start), 0) :]:
            if segment.has_aborted is not False and segment.look_for_aborted():
                break
        else:
            return []
        index = self.floor_segment(found.segment_base_offset)
        try:
            end = self._segments[index].offset_index.offset_at_or_after(found.position + found.length)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        if end is None:
            last = index + 1 == len(self._segments)
            end = self.log_end_offset if last else self._segments[index + 1].base_offset
        return self.aborted_transactions(start, end)

    def aborted_transactions(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """The aborted transactions that overlap [start, end), for a read_committed fetch of that range."""
        found: list[AbortedTxn] = []
        try:
            for segment in self._segments[max(self.floor_segment(start), 0) :]:
                if not segment.look_for_aborted():
                    continue
                if collect_aborted(list(segment.aborted_transactions()), start, end, found):
                    break
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        return found

    # ------------------------------------------------------------------------------------------------ as a copy

    def skip_to(self, offset: Offset, now_ms: TimestampMs) -> None:
        """End the log at `offset` without a batch there, in a new segment: compaction removed the last batches."""
        if offset <= self.log_end_offset:
            return
        self._check_usable()
        emptied = [segment for segment in (self._active,) if segment.size == 0]
        try:
            self._roll_at(offset, now_ms)
            self.log_end_offset = offset
            # An empty segment before the last one would mean that its batches were lost.
            self._delete_files(self._take_out(emptied), now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error

    def prepare_promotion(self, replaced: PartitionLog, now_ms: TimestampMs) -> None:
        """Write and sync all that a start needs to take this copy in the place of `replaced`, which it equals. Blocks.

        The producers and leader epochs are those of `replaced`: its records below the log start offset, and batches that
        compaction removed, are not in the copy.
        """
        self._check_usable()
        end_snapshot = self._snapshots.path(self.log_end_offset)
        paths = [f"{self.directory}/{name}" for name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT)]
        try:
            self._snapshots.replace(replaced.producers)
            EpochCache(replaced.epochs.entries).write(self.log_dir.storage, self.directory)
            for segment in self._segments:
                segment.flush_indexes()
            plan = self._plan(self.log_end_offset, end_snapshot, *paths)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        try:
            plan.sync()
        except OSError as error:
            raise self.flush_failed(error) from error
        self.flushed(plan, now_ms)

    def promote(self, replaced: PartitionLog) -> None:
        """Take the partition's name after `prepare_promotion`. After KafkaError, the copy is still a copy, or its
        directory is offline, because the new name may not be on disk.
        """
        before = self.directory
        self.rename_directory(f"{self.log_dir.path}/{self.topic_partition}")
        try:
            self.log_dir.storage.sync_dir(self.log_dir.path)
        except OSError as error:
            if lacks_descriptors(error):
                self.rename_directory(before)
            raise self.flush_failed(error) from error
        self.producers = replaced.producers
        self._producers_changed()
        self._epochs = EpochCache(replaced.epochs.entries)
        self.verification_enabled = replaced.verification_enabled
