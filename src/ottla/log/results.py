"""What the log answers with: values without behaviour beyond reading their own bytes."""

from __future__ import annotations

from typing import NamedTuple

from ottla.env.seams import File
from ottla.log.open_files import SharedFile
from ottla.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs


class AppendResult(NamedTuple):
    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: TimestampMs
    """-1 unless the topic's timestamps are LogAppendTime."""
    max_timestamp: TimestampMs
    size_bytes: int
    duplicate: bool
    """The batch was appended before; the offsets are those of its first append and nothing was written."""
    flush_due: bool
    """`flush.messages` is reached: sync (`prepare_flush`) before answering."""


class LogSlice:
    """A region of a segment file: whole batches, to be sent or read without a copy in between.

    The file stays open as long as the slice lives. A truncation below `position + length` may shorten what is read.
    """

    __slots__ = ("_shared", "fetch_offset", "length", "position", "segment_base_offset")

    def __init__(
        self, shared: SharedFile | None, position: int, length: int, fetch_offset: Offset, segment_base_offset: Offset
    ) -> None:
        self._shared = shared
        self.position = position
        self.length = length
        self.fetch_offset = fetch_offset
        self.segment_base_offset = segment_base_offset

    @property
    def file(self) -> File:
        if self._shared is None:
            raise ValueError("an empty slice has no file")
        return self._shared.file

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position) if self.length else b""

    def __len__(self) -> int:
        return self.length


class TimestampedOffset(NamedTuple):
    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


class ActiveProducer(NamedTuple):
    """What DescribeProducers shows."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_timestamp: TimestampMs
    coordinator_epoch: int
    current_txn_start_offset: Offset
