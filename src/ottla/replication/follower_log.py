"""A replica that follows: where it begins to fetch, and how far it goes back when its log left the leader's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.partition_log import PartitionLog, UnexpectedAppendOffsetError
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.log.results import AppendResult

_UNDEFINED = -1


def begin(log: PartitionLog, now_ms: TimestampMs) -> None:
    """Before the first fetch of an epoch: a log that cannot name its epochs keeps only what is committed."""
    if log.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
        log.truncate_to(log.high_watermark, now_ms)


def append(
    log: PartitionLog, batches: Buffer, max_leader_epoch: LeaderEpoch, now_ms: TimestampMs
) -> AppendResult | None:
    """Append what the leader sent. An empty log may start inside of a batch, where the leader's log starts since
    DeleteRecords: it begins with the whole batch then."""
    try:
        return log.append_as_follower(batches, now_ms=now_ms, max_leader_epoch=max_leader_epoch)
    except UnexpectedAppendOffsetError as error:
        if log.log_end_offset != log.log_start_offset or log.size_bytes:
            raise
        log.truncate_fully_and_start_at(error.first_offset, now_ms)
        return log.append_as_follower(batches, now_ms=now_ms, max_leader_epoch=max_leader_epoch)


def truncation_offset(log: PartitionLog, epoch: LeaderEpoch, end_offset: Offset) -> Offset:
    """Where to cut when the leader says that `epoch`, its last one before what we asked for, ends at `end_offset`."""
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
        # We never had that epoch: go back to the end of the one before and ask again.
        return min(own_end, end)
    return min(own_end, end_offset, end)
