"""Removal of segments from the log: the oldest by retention, others in exchange for compacted segments.

A segment leaves the log when its files are renamed, and not before: after an OSError the log agrees with its files. An
exchange that an OSError interrupts is finished before the next exchange, or by the next load.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from ottla.log.file_names import SWAP_SUFFIX
from ottla.log.log_roll import LogRoll
from ottla.log.log_segments import LogSegments
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.segment import Segment
from ottla.model.ids import TimestampMs


class PendingExchange(NamedTuple):
    """Segments that have left the log and still have their names, and those in their place, `.swap` perhaps."""

    old: list[Segment]
    new: list[Segment]
    time_ms: TimestampMs


class SegmentExchange:
    __slots__ = ("_pending", "_roll", "_segments", "_snapshots")

    def __init__(self, segments: LogSegments, snapshots: ProducerSnapshots, roll: LogRoll) -> None:
        self._segments = segments
        self._snapshots = snapshots
        self._roll = roll
        self._pending: PendingExchange | None = None

    def delete_oldest(self, oldest: Sequence[Segment], now_ms: TimestampMs) -> int:
        """Take the oldest segments out of the log; when all go, an empty one at the log end takes their place."""
        if len(oldest) == len(self._segments):
            self._roll.at_end(now_ms)
        for segment in list(oldest):
            self._segments.delete(segment, now_ms)
            self._delete_snapshot(segment, now_ms)
        return len(oldest)

    def _delete_snapshot(self, segment: Segment, now_ms: TimestampMs) -> None:
        marked = self._snapshots.mark_deleted(segment.base_offset)
        if marked is not None:
            self._segments.delete_later([marked], now_ms)

    def replace(self, new: Sequence[Segment], old: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Replace segments by the compacted segments (`.cleaned` files, complete) that were made from them.

        First all new segments are renamed to `.swap`: a crash or an error before the last rename drops the new segments.
        After that they belong to the log, under either name. The next load finishes the exchange, and so does `finish`
        after an error of the disk.
        """
        self.finish()
        try:
            _rename_to_swap(new)
        except OSError:
            _remove(new)
            raise
        self._pending = PendingExchange(list(old), list(new), now_ms)
        self._segments.replace(new, old)
        self.finish()

    def finish(self) -> None:
        """Finish the last exchange. This happens before the next `.cleaned` file, beside which a `.swap` file has
        another meaning.
        """
        exchange = self._pending
        if exchange is None:
            return
        kept = {segment.base_offset for segment in exchange.new}
        while exchange.old:
            segment = exchange.old[0]
            self._segments.delete_files(segment, exchange.time_ms)
            if segment.base_offset not in kept:
                self._delete_snapshot(segment, exchange.time_ms)
            del exchange.old[0]
        for segment in exchange.new:
            if segment.suffix == SWAP_SUFFIX:  # it may have been deleted meanwhile
                segment.forget()
                segment.rename("")
        self._segments.log_dir.storage.sync_dir(self._segments.directory)
        self._pending = None


def _rename_to_swap(new: Sequence[Segment]) -> None:
    """Highest base offset first: a load drops all `.swap` files while a `.cleaned` file is left."""
    for segment in sorted(new, key=lambda segment: segment.base_offset, reverse=True):
        segment.finish_indexes()
        segment.forget()
        segment.rename(SWAP_SUFFIX)


def _remove(new: Sequence[Segment]) -> None:
    with contextlib.suppress(OSError):  # the next start removes what cannot be removed now
        for segment in new:
            segment.remove_files()
