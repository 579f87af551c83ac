"""The aborted transactions of a range of offsets, from the transaction indexes: what a read_committed reader leaves out.

Nothing here changes the log. An OSError becomes KAFKA_STORAGE_ERROR through the log directory.
"""

from __future__ import annotations

from ottla.log.log_offsets import LogOffsets
from ottla.log.log_segments import LogSegments
from ottla.log.results import LogSlice
from ottla.log.transaction_index import AbortedTxn, collect_aborted
from ottla.model.ids import Offset


class AbortedTransactions:
    __slots__ = ("_offsets", "_segments")

    def __init__(self, segments: LogSegments, offsets: LogOffsets) -> None:
        self._segments = segments
        self._offsets = offsets

    def within(self, read: LogSlice, start: Offset) -> list[AbortedTxn]:
        """The aborted transactions that a read_committed reader of the slice needs, from `start` on. As in Kafka, the
        offset index gives the end of the slice, so that a fetch does not list a long backlog.
        """
        segments = self._segments
        for segment in segments.from_offset(start):
            if segment.has_aborted is not False and segment.look_for_aborted():
                break
        else:
            return []
        try:
            end = segments.offset_after(read, self._offsets.log_end_offset)
        except OSError as error:
            raise segments.log_dir.storage_error(error) from error
        return self.between(start, end)

    def between(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """The aborted transactions that overlap [start, end)."""
        aborted: list[AbortedTxn] = []
        try:
            for segment in self._segments.from_offset(start):
                if not segment.look_for_aborted():
                    continue
                if collect_aborted(list(segment.aborted_transactions()), start, end, aborted):
                    break
        except OSError as error:
            raise self._segments.log_dir.storage_error(error) from error
        return aborted
