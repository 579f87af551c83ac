"""The append to a log: offsets and epochs into the buffer, one write, then the state that follows from the bytes.

Everything that can refuse comes before the write: an OSError there leaves the log as it was. After the write nothing
refuses the bytes: a failing index takes the log directory offline. The batches were validated before (`validation`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.log.append_limits import AppendLimits
from ottla.log.epoch_cache import EpochCache
from ottla.log.log_offsets import LogOffsets
from ottla.log.log_roll import LogRoll
from ottla.log.log_segments import LogSegments
from ottla.log.log_truncation import LogTruncation
from ottla.log.producer_rebuild import end_transaction, marker_of
from ottla.log.producer_state import ProducerState, VerificationGuard
from ottla.log.results import AppendResult
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTxn
from ottla.log.validation import AppendOrigin, ValidatedBatches, analyze_replicated
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


class LogAppend:
    __slots__ = (
        "_epochs",
        "_log_dir",
        "_offsets",
        "_producers",
        "_roll",
        "_segments",
        "_truncation",
        "limits",
    )

    def __init__(
        self,
        *,
        segments: LogSegments,
        offsets: LogOffsets,
        epochs: EpochCache,
        producers: ProducerState,
        roll: LogRoll,
        truncation: LogTruncation,
    ) -> None:
        self._log_dir = segments.log_dir
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._roll = roll
        self._truncation = truncation
        self.limits = AppendLimits(segments.config)

    def as_leader(
        self,
        validated: ValidatedBatches,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Assign offsets and epoch to validated batches and write them. KafkaError refuses them with nothing changed."""
        buf, batches, append_time = validated
        first_offset = next_offset = self._offsets.log_end_offset
        producers = self._producers
        for position, header in batches:
            if header.producer_id >= 0 and not producers.follows(header):
                if origin is _CLIENT:
                    earlier = producers.duplicate_of(header)
                    if earlier is not None:
                        timestamp = earlier.timestamp
                        return AppendResult(
                            earlier.first_offset, earlier.last_offset, timestamp, timestamp, 0, True, False
                        )
                self._judge(buf, position, header, origin, verification_guard, transaction_version)
            # Base offset and leader epoch in one go, the length between them as it stands; none is under the CRC.
            _assign(buf, position, next_offset, header.batch_length, leader_epoch)
            next_offset += header.last_offset_delta + 1
        size = self._write(buf, batches, first_offset, next_offset - 1, leader_epoch, now_ms)
        max_timestamp = batches[0][1].max_timestamp
        if len(batches) > 1:
            max_timestamp = max(header.max_timestamp for _, header in batches)
        flush_due = next_offset - self._offsets.recovery_point >= self.limits.flush_messages
        return _new_tuple(
            AppendResult, (first_offset, next_offset - 1, append_time, max_timestamp, size, False, flush_due)
        )

    def as_follower(
        self, batches: Buffer, now_ms: TimestampMs, max_leader_epoch: LeaderEpoch | None
    ) -> AppendResult | None:
        """Append batches that have their offsets and epochs already: from a leader, or the raft log's own.

        A batch that is cut off at the end, or of a later epoch than `max_leader_epoch`, is left out; None when nothing
        remains. UnexpectedAppendOffsetError when the batches begin below the log end offset.
        """
        parsed = analyze_replicated(batches, self._segments.topic_partition)
        if max_leader_epoch is not None:
            for number, (_, header) in enumerate(parsed):
                if header.leader_epoch > max_leader_epoch:
                    del parsed[number:]
                    break
        if not parsed:
            return None
        offsets = self._offsets
        first_offset = parsed[0][1].base_offset
        if first_offset < offsets.log_end_offset:
            raise UnexpectedAppendOffsetError(self._segments.topic_partition, first_offset, offsets.log_end_offset)
        last_position, last = parsed[-1]
        with memoryview(batches) as view, view.cast("B")[: last_position + last.size] as whole:
            size = self._write(whole, parsed, first_offset, last.last_offset, None, now_ms)
        max_timestamp = max(header.max_timestamp for _, header in parsed)
        flush_due = offsets.log_end_offset - offsets.recovery_point >= self.limits.flush_messages
        return AppendResult(first_offset, last.last_offset, NO_TIMESTAMP, max_timestamp, size, False, flush_due)

    def _judge(
        self,
        buf: Buffer,
        position: int,
        header: BatchHeader,
        origin: AppendOrigin,
        verification_guard: VerificationGuard | None,
        transaction_version: int,
    ) -> None:
        if header.attributes & CONTROL_MASK:
            marker, _ = marker_of(buf, position)
            if marker is not None:
                self._producers.check_marker(header, marker, transaction_version)
        else:
            self._producers.check(header, origin, verification_guard)

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
        log_dir, limits, offsets = self._log_dir, self.limits, self._offsets
        if log_dir.offline or self._truncation.pending is not None:
            self._truncation.check_usable()
        size = len(buf)  # type: ignore[arg-type]
        segment = self._segments.active
        try:
            start = segment.size
            if start and segment.should_roll(
                size, limits.segment_bytes, limits.segment_ms, limits.index_bytes, last_offset, batches[-1][1], now_ms
            ):
                segment = self._roll.at(first_offset, now_ms)
                start = segment.size
            epochs = self._epochs
            if leader_epoch is not None:
                if leader_epoch != epochs.latest_epoch or epochs.unwritten:
                    epochs.assign_and_write([(leader_epoch, first_offset)])
            else:
                latest = epochs.latest_epoch
                if batches[0][1].leader_epoch != latest or batches[-1][1].leader_epoch != latest or epochs.unwritten:
                    epochs.assign_and_write([(header.leader_epoch, header.base_offset) for _, header in batches])
            segment.write(buf, size)
        except OSError as error:
            if leader_epoch is None:
                self._epochs.truncate_from_end(offsets.log_end_offset)
            raise log_dir.storage_error(error) from error
        # From here the bytes stand: nothing below may refuse them.
        offsets.log_end_offset = last_offset + 1
        producers = self._producers
        try:
            offset = first_offset
            for position, header in batches:
                if leader_epoch is None:
                    offset = header.base_offset
                end = offset + header.last_offset_delta
                segment.note_batch(start + position, end, header, limits.index_interval)
                if header.producer_id >= 0:
                    if header.attributes & _IN_TRANSACTION:
                        self._note_transactional(segment, buf, position, header, offset)
                    else:
                        producers.update(header, offset)
                offset = end + 1
        except OSError as error:
            log_dir.fail(error)
            raise log_dir.storage_error(error) from error
        producers.end_offset = last_offset + 1
        return size

    def _note_transactional(
        self, segment: Segment, buf: Buffer, position: int, header: BatchHeader, offset: Offset
    ) -> None:
        producers = self._producers
        if header.attributes & CONTROL_MASK:
            completed = end_transaction(producers, header, buf, position, offset)
            if completed is not None:
                stable = producers.complete(completed)
                if completed.aborted:
                    producer_id, first, last, _ = completed
                    segment.note_aborted(AbortedTxn(producer_id, first, last, stable))
        else:
            producers.update(header, offset)
        self._offsets.first_unstable_offset = producers.first_unstable_offset()
