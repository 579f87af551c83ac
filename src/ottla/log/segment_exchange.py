"""Removal of segments from the log: the oldest by retention, others in exchange for compacted segments.

A segment leaves the log when its files are renamed, and not before: after an OSError the log agrees with its files. An
exchange that an OSError interrupts is finished before the next exchange, or by the next load.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ottla.log.file_names import SWAP_SUFFIX
from ottla.log.replica_log import Exchange, ReplicaLog
from ottla.log.segment import Segment
from ottla.model.ids import TimestampMs


class SegmentExchange(ReplicaLog):
    __slots__ = ()

    def delete_segments(self, segments: Sequence[Segment], now_ms: TimestampMs) -> int:
        """Take the oldest segments out of the log; when all go, an empty one at the log end takes their place."""
        if not segments:
            return 0
        self._check_usable()
        deleted = 0
        try:
            if len(segments) == len(self._segments):
                self._roll_at(self.log_end_offset, now_ms)
            for segment in list(segments):
                self._delete_files([segment], now_ms)
                self._take_out([segment])
                deleted += 1
                self._delete_snapshot(segment, now_ms)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        finally:
            if deleted and not self.log_dir.offline:
                self.advance_log_start_offset(max(self.log_start_offset, min(self._bases[0], self.high_watermark)))
        return deleted

    def _delete_snapshot(self, segment: Segment, now_ms: TimestampMs) -> None:
        marked = self._snapshots.mark_deleted(segment.base_offset)
        if marked is not None:
            self.log_dir.delete_later([marked], now_ms + self._config.file_delete_delay_ms)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Replace segments by the compacted segments (`.cleaned` files, complete) that were made from them.

        First all new segments are renamed to `.swap`, highest base offset first: a crash or an error before the last
        rename drops the new segments. After that they belong to the log, under either name. The next load finishes the
        exchange, and so does `finish_exchange` after an error of the disk.
        """
        self._check_usable()
        self.finish_exchange()
        self._make_ready(new)
        self._exchange = Exchange(self._take_out(old), list(new), now_ms)
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
        """Finish the last exchange. This happens before the next `.cleaned` file, beside which a `.swap` file has
        another meaning.
        """
        exchange = self._exchange
        if exchange is None:
            return
        kept = {segment.base_offset for segment in exchange.new}
        try:
            while exchange.old:
                segment = exchange.old[0]
                self._delete_files([segment], exchange.time_ms)
                if segment.base_offset not in kept:
                    self._delete_snapshot(segment, exchange.time_ms)
                del exchange.old[0]
            for segment in exchange.new:
                if segment.suffix == SWAP_SUFFIX:  # it may have been deleted meanwhile
                    segment.forget()
                    segment.rename("")
            self.log_dir.storage.sync_dir(self.directory)
        except OSError as error:
            raise self.log_dir.storage_error(error) from error
        self._exchange = None
