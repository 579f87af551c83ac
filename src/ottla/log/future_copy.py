"""The copy of a partition's log in another directory, made to follow the log that serves (AlterReplicaLogDirs).

The copy follows the current log as a follower replicates its leader. Where the two logs diverge, the copy is truncated
by leader epochs. The copy receives the batches, the high watermark and the log start offset of the current log. Only
this module truncates a copy. While a copy exists, the current log is not compacted: compaction could remove a tombstone
before the tombstone is copied. The copy would then keep the deleted value.
"""

from __future__ import annotations

from ottla.log.log_append import UnexpectedAppendOffsetError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import below_log_start
from ottla.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TimestampMs

_UNKNOWN_GENERATION = -1


class FutureCopy:
    __slots__ = ("_generation", "_unsynced_bytes", "current", "future")

    def __init__(self, current: PartitionLog, future: PartitionLog) -> None:
        self.current = current
        self.future = future
        self._generation = _UNKNOWN_GENERATION
        """Of the current log when the copy was last compared with it."""
        self._unsynced_bytes = 0
        current.being_moved = True

    @property
    def caught_up(self) -> bool:
        """Whether the copy holds exactly what the current log holds."""
        end = self.current.log_end_offset
        return self._generation == self.current.generation and self._common_end() == self.future.log_end_offset == end

    def advance(self, max_bytes: int, now_ms: TimestampMs) -> int:
        """Copy about `max_bytes` more; returns how many bytes were copied. KafkaError when one of the disks refuses."""
        if self.future.config is not self.current.config:
            self.future.config = self.current.config
        self._cut(now_ms)
        copied = self._append(max_bytes, now_ms)
        self._unsynced_bytes += copied
        self._follow_offsets(now_ms)
        return copied

    def take_unsynced(self, at_least: int) -> bool:
        """Whether so many bytes were copied since the last True: the caller syncs them."""
        due = self._unsynced_bytes >= at_least
        if due:
            self._unsynced_bytes = 0
        return due

    def start_over(self, now_ms: TimestampMs) -> None:
        """Drop what was copied."""
        self.future.truncate_fully_and_start_at(self.current.log_start_offset, now_ms)

    def release(self) -> None:
        """The copy is gone or serves now: the log that it was made from may be compacted again."""
        self.current.being_moved = False

    # Truncation

    def _cut(self, now_ms: TimestampMs) -> None:
        current, future = self.current, self.future
        while (end := self._common_end()) < future.log_end_offset:
            future.truncate_to(end, now_ms)
        empty = current.log_end_offset == current.log_start_offset
        if future.log_end_offset < current.log_start_offset or (empty and future.size_bytes):
            self.start_over(now_ms)
        self._generation = current.generation

    def _common_end(self) -> Offset:
        """Where the copy has to be cut next: at its own end when it is a part of the current log."""
        current, future = self.current, self.future
        end = min(future.log_end_offset, current.log_end_offset)
        if future.latest_epoch == NO_LEADER_EPOCH:
            if self._generation not in (_UNKNOWN_GENERATION, current.generation):
                # Batches of an unknown epoch: only what is committed is certain to be the same.
                return min(end, future.high_watermark)
            return end
        epoch, epoch_end = _end_for(current, future.latest_epoch)
        if epoch == future.latest_epoch:
            return min(end, epoch_end)
        # The current log has nothing of that epoch: back to the end of the epoch before it, then compare again.
        own_epoch, own_end = _end_for(future, epoch)
        return min(end, own_end, epoch_end) if own_epoch == epoch else min(end, own_end)

    # Copying

    def _append(self, max_bytes: int, now_ms: TimestampMs) -> int:
        current, future = self.current, self.future
        piece = current.read(future.log_end_offset, max_bytes)
        if not piece.length:
            # Compaction has removed the last batches, and the log ends in a hole.
            future.skip_to(current.log_end_offset, now_ms)
            return 0
        try:
            data = piece.read()
        except OSError as error:
            raise current.log_dir.storage_error(error) from error
        try:
            future.append_as_follower(data, now_ms=now_ms)
        except UnexpectedAppendOffsetError as error:
            if future.log_end_offset != future.log_start_offset or future.size_bytes:
                raise
            # The log starts inside of a batch (DeleteRecords): the copy begins with the whole batch.
            future.truncate_fully_and_start_at(error.first_offset, now_ms)
            future.append_as_follower(data, now_ms=now_ms)
        return piece.length

    def _follow_offsets(self, now_ms: TimestampMs) -> None:
        current, future = self.current, self.future
        future.advance_high_watermark(current.high_watermark)
        start = min(current.log_start_offset, future.high_watermark)
        if start > future.log_start_offset:
            future.advance_log_start_offset(start)
            future.delete_segments(below_log_start(future, now_ms), now_ms)


def _end_for(log: PartitionLog, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
    """The largest epoch <= `epoch` in the log and its end offset; of an epoch past the last one, the log's end."""
    latest = log.latest_epoch
    if latest < epoch:
        return latest, log.log_end_offset
    return log.end_offset_for_epoch(epoch) or (NO_LEADER_EPOCH, log.log_end_offset)


def is_part_of(log: PartitionLog, other: PartitionLog) -> bool:
    """Whether `other` holds everything that `log` holds, by leader epochs and end offsets."""
    epoch, end = _end_for(other, log.latest_epoch)
    return epoch == log.latest_epoch and log.log_end_offset <= end and other.log_start_offset <= log.log_end_offset
