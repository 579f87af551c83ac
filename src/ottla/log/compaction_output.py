"""The segment that a compaction writes: `.cleaned` files beside the log, written in large pieces.

It becomes part of the log only by `PartitionLog.replace_segments`, after a `BlockingSync` has brought it to the disk.
"""

from __future__ import annotations

from ottla.env.seams import Storage
from ottla.log.file_names import CLEANED_SUFFIX, INDEX_SUFFIXES
from ottla.log.open_files import SharedFile
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTxn
from ottla.protocol.records import BatchHeader, parse_header

WRITE_BYTES = 256 * 1024


class BlockingSync:
    """Syncs a finished `.cleaned` segment. Touches nothing of the log: it may run in a thread, once."""

    __slots__ = ("_file", "_paths", "_storage", "done")

    def __init__(self, storage: Storage, file: SharedFile, paths: list[str]) -> None:
        self._storage = storage
        self._file = file
        self._paths = paths
        self.done = False

    def __call__(self) -> None:
        self._file.file.sync()
        for path in self._paths:
            if self._storage.exists(path):
                file = self._storage.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        self.done = True


class CleanedSegment:
    __slots__ = ("_index_interval", "_pending", "_pending_headers", "_storage", "segment")

    def __init__(self, log: PartitionLog, first: Segment) -> None:
        """An empty one that begins where `first` does. KafkaError when there is no room to finish the last one."""
        log.finish_exchange()
        self._storage = log.log_dir.storage
        self._index_interval = log.config.index_interval_bytes
        self._pending = bytearray()
        self._pending_headers: list[tuple[int, BatchHeader]] = []
        self.segment = Segment(
            self._storage,
            log.log_dir.open_files,
            first.directory,
            first.base_offset,
            created_ms=first.created_ms,
            suffix=CLEANED_SUFFIX,
        )
        self.segment.create()

    def append(self, batch: bytes | bytearray) -> None:
        self._pending_headers.append((len(self._pending), parse_header(batch, 0)))
        self._pending += batch
        if len(self._pending) >= WRITE_BYTES:
            self._write()

    def note_aborted(self, aborted: AbortedTxn) -> None:
        self.segment.note_aborted(aborted)

    def finish(self) -> BlockingSync:
        """Write all files, indexes included; the returned `BlockingSync` syncs them."""
        self._write()
        self.segment.finish_indexes()
        paths = [self.segment.path(kind) for kind in INDEX_SUFFIXES]
        return BlockingSync(self._storage, self.segment.shared_file(), paths)

    def discard(self) -> None:
        """Remove the files of a pass that will not be finished."""
        self.segment.remove_files()

    def _write(self) -> None:
        start = self.segment.size
        self.segment.write(self._pending, len(self._pending))
        for position, header in self._pending_headers:
            self.segment.note_batch(start + position, header.last_offset, header, self._index_interval)
        self._pending = bytearray()
        self._pending_headers.clear()
