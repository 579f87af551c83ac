"""The log of a follower: preparation before the first fetch, appends, and the truncation offset after a divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.log_append import UnexpectedAppendOffsetError
from ottla.log.partition_log import PartitionLog
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.log.results import AppendResult

_UNDEFINED = -1


def begin(log: PartitionLog, now_ms: TimestampMs) -> None:
    """Before the first fetch of an epoch: a log without leader epochs keeps only committed records."""
    if log.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
        log.truncate_to(log.high_watermark, now_ms)


def append(
    log: PartitionLog, batches: Buffer, max_leader_epoch: LeaderEpoch, now_ms: TimestampMs
) -> AppendResult | None:
    """Append batches of the leader. After DeleteRecords the leader's log may start inside a batch: an empty log then
    begins with the whole batch. Its start stays where it was, or a kill would bring deleted records back."""
    try:
        return log.append_as_follower(batches, now_ms=now_ms, max_leader_epoch=max_leader_epoch)
    except UnexpectedAppendOffsetError as error:
        if log.log_end_offset != log.log_start_offset or log.size_bytes:
            raise
        start = log.log_start_offset
        log.truncate_fully_and_start_at(error.first_offset, now_ms, log_start_offset=start)
        result = log.append_as_follower(batches, now_ms=now_ms, max_leader_epoch=max_leader_epoch)
        log.advance_high_watermark(start)
        log.advance_log_start_offset(start)
        return result


def truncation_offset(log: PartitionLog, epoch: LeaderEpoch, end_offset: Offset) -> Offset:
    """The offset to truncate to. The leader's `epoch`, the last before the fetched offset, ends at `end_offset`."""
    end = log.log_end_offset
    if end_offset == _UNDEFINED:
        return min(log.high_watermark, end)
    if epoch == _UNDEFINED:
        return min(end_offset, end)
    epoch_end = log.end_offset_for_epoch(epoch)
    if epoch_end is None:
        return min(end_offset, end)
    own_epoch, own_end = epoch_end
    if own_epoch != epoch:
        # This log does not have that epoch: truncate to the end of the epoch before, then fetch again.
        return min(own_end, end)
    return min(own_end, end_offset, end)
