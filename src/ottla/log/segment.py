"""A segment: one `.log` file of consecutive batches and its indexes.

Only this module writes a `.log` file. `size` counts the good bytes: what a failed write left after them is cut off
before the next one. The file is opened when needed and may be closed by `OpenFiles` at any time. Positions of recent
batch boundaries are remembered, so that a tail reader and the high watermark need no lookup in the index.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.env.seams import File, Storage
from ottla.log.batch_scan import LOOKUP_BYTES, WALK_BYTES, scan_headers
from ottla.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_name,
)
from ottla.log.indexes import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex
from ottla.log.open_files import OpenFiles, SharedFile
from ottla.log.transaction_index import AbortedTxn, append_aborted, read_aborted, truncate_aborted
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from ottla.protocol.records_header import LOG_OVERHEAD, BatchHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

REMEMBERED_POSITIONS = 64
_NOT_LOADED = -2
"""A timestamp that has not been read from the files yet."""


class Segment:
    __slots__ = (
        "_aborted_tail",
        "_bytes_since_index",
        "_doubted",
        "_first_timestamp",
        "_index_bytes",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_open_files",
        "_positions",
        "_shared",
        "_storage",
        "_time_index",
        "base_offset",
        "created_ms",
        "directory",
        "has_aborted",
        "roll_jitter_ms",
        "size",
        "suffix",
        "used",
    )

    def __init__(
        self,
        storage: Storage,
        open_files: OpenFiles,
        directory: str,
        base_offset: Offset,
        *,
        size: int = 0,
        created_ms: TimestampMs = 0,
        suffix: str = "",
    ) -> None:
        """A segment whose files exist or are about to be created by `create`; `size` is the good bytes in `.log`."""
        self._storage = storage
        self._open_files = open_files
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.size = size
        self.created_ms = created_ms
        self.roll_jitter_ms = 0
        self.used = False
        self._shared: SharedFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._positions: dict[Offset, int] | None = None
        self._aborted_tail: list[AbortedTxn] | None = None
        self.has_aborted: bool | None = None
        """Whether the segment has the marker of an aborted transaction; None until the disk was read."""
        self._bytes_since_index = 0
        self._doubted = False
        """Whether the offset index was found not to fit, and made again where that could be."""
        self._index_bytes = 0
        """What the larger index will have with one more entry: `segment.index.bytes` limits it."""
        self._first_timestamp: TimestampMs = _NOT_LOADED
        self._max_timestamp: TimestampMs = _NOT_LOADED if size else NO_TIMESTAMP
        self._max_timestamp_offset: Offset = base_offset

    # ------------------------------------------------------------------------------------------------ files

    def path(self, kind: str) -> str:
        return f"{self.directory}/{segment_name(self.base_offset)}{kind}{self.suffix}"

    def create(self) -> None:
        """Create the empty files; leftovers under the same names are removed. After an OSError none of the files is
        left: an empty `.log` outside of the list of segments would end the log at the next start.
        """
        self._storage.remove(self.path(TXN_INDEX_SUFFIX))
        self.has_aborted = False
        try:
            for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                file = self._storage.open(self.path(kind), create=True)
                try:
                    file.truncate(0)
                finally:
                    file.close()
            self.shared_file(create=True).file.truncate(0)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove_files()
            raise

    def shared_file(self, *, create: bool = False) -> SharedFile:
        """The open `.log`; a reader that sends from the file keeps the SharedFile until it is done."""
        shared = self._shared
        if shared is None:
            shared = self._shared = SharedFile(self._storage.open(self.path(LOG_SUFFIX), create=create))
            self._open_files.opened(self)
        self.used = True
        return shared

    @property
    def file(self) -> File:
        return self.shared_file().file

    def release_file(self) -> None:
        self._shared = None

    def close(self) -> None:
        """Write the indexes out, with the largest timestamp as their last entry, and let the file go."""
        self.finish_indexes()
        self.forget()

    def forget(self) -> None:
        """Let the file go and nothing else: the segment is being deleted or its directory failed."""
        if self._shared is not None:
            self._shared = None
            self._open_files.closed(self)

    def finish_indexes(self) -> None:
        """The segment gets no more appends, or the node stops: everything that is only in memory is written."""
        if self._max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        self.flush_indexes()

    def flush_indexes(self) -> None:
        if self._offset_index is not None:
            self._offset_index.flush()
        if self._time_index is not None:
            self._time_index.flush()
        if self._aborted_tail:
            append_aborted(self._storage, self.path(TXN_INDEX_SUFFIX), self._aborted_tail)
            self._aborted_tail = None

    def rename(self, suffix: str) -> None:
        """Give every file of the segment another suffix (`.deleted`, `.swap` or none), or after an OSError none."""
        before, self.suffix = self.suffix, suffix
        pairs = [(f"{self.path(kind).removesuffix(suffix)}{before}", self.path(kind)) for kind in SEGMENT_SUFFIXES]
        renamed = []
        try:
            for source, target in pairs:
                with contextlib.suppress(FileNotFoundError):
                    self._storage.rename(source, target)
                    renamed.append((target, source))
        except OSError:
            self.suffix = before
            for target, source in renamed:
                with contextlib.suppress(OSError):
                    self._storage.rename(target, source)
            raise
        self._offset_index = None
        self._time_index = None

    def moved_to(self, directory: str) -> None:
        """The partition's folder was renamed; its indexes were written out before."""
        self.directory = directory
        self._offset_index = None
        self._time_index = None

    def remove_files(self) -> None:
        self.forget()
        for kind in SEGMENT_SUFFIXES:
            self._storage.remove(self.path(kind))

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._offset_index = OffsetIndex(self._storage, self.path(INDEX_SUFFIX), self.base_offset)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._time_index = TimeIndex(self._storage, self.path(TIME_INDEX_SUFFIX), self.base_offset)
        return self._time_index

    # ------------------------------------------------------------------------------------------------ appending

    def write(self, data: Buffer, length: int) -> None:
        """Put `data` at the end of the file. After an OSError the good part is what it was before. What `note_batch` needs
        is loaded before the write, while an OSError can still refuse the batch.
        """
        if self._offset_index is None or self._time_index is None or self._max_timestamp == _NOT_LOADED:
            _ = self.offset_index, self.time_index, self.max_timestamp
        shared = self._shared
        if shared is None:
            shared = self.shared_file()
        self.used = True
        try:
            shared.file.pwrite(data, self.size)
        except OSError:
            with contextlib.suppress(OSError):
                shared.file.truncate(self.size)
            raise
        self.size += length

    def note_batch(self, position: int, last_offset: Offset, header: BatchHeader, index_interval: int) -> None:
        """Index a batch that was just written at `position`."""
        timestamp = header.max_timestamp
        if self._max_timestamp == _NOT_LOADED:
            self._load_max_timestamp()
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self._first_timestamp = timestamp
        size = header.batch_length + LOG_OVERHEAD
        if self._bytes_since_index > index_interval:
            index, time_index = self._offset_index, self._time_index
            if index is None or time_index is None:
                index, time_index = self.offset_index, self.time_index
            offset_bytes = index.append(last_offset, position)
            time_bytes = time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._index_bytes = max(offset_bytes, time_bytes)
            self._bytes_since_index = size
        else:
            self._bytes_since_index += size
        positions = self._positions
        if positions is None or len(positions) >= REMEMBERED_POSITIONS:
            positions = self._positions = {}
        positions[last_offset + 1] = position + size

    def note_aborted(self, aborted: AbortedTxn) -> None:
        """Add to the transaction index. When the disk is full it waits in memory, as the other indexes do."""
        self.has_aborted = True
        pending = [*(self._aborted_tail or ()), aborted]
        try:
            append_aborted(self._storage, self.path(TXN_INDEX_SUFFIX), pending)
            self._aborted_tail = None
        except OSError:
            self._aborted_tail = pending

    def should_roll(
        self,
        size: int,
        segment_bytes: int,
        segment_ms: int,
        index_bytes: int,
        last_offset: Offset,
        last_batch: BatchHeader,
        now_ms: TimestampMs,
    ) -> bool:
        """Whether the next `size` bytes belong into a new segment: this one, which is not empty, is full or old."""
        if self.size + size > segment_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        first = self._first_timestamp
        if first >= 0:
            if last_batch.max_timestamp - first + self.roll_jitter_ms > segment_ms:
                return True
        elif self.waited_for_roll_ms(now_ms, last_batch.max_timestamp) > segment_ms:
            return True
        return self._index_bytes > index_bytes

    # ------------------------------------------------------------------------------------------------ looking up

    def remember(self, offset: Offset, position: int) -> None:
        """A batch that starts at or after `offset` begins at `position`."""
        positions = self._positions
        if positions is None or len(positions) >= REMEMBERED_POSITIONS:
            self._positions = {offset: position}
        else:
            positions[offset] = position

    def position_of(self, offset: Offset) -> int | None:
        """Where the first batch that ends at or after `offset` begins; None when there is none in the segment."""
        if offset <= self.base_offset:
            return 0 if self.size else None
        positions = self._positions
        if positions is not None:
            position = positions.get(offset)
            if position is not None:
                return position if position < self.size else None
        indexed_offset, start = self.offset_index.floor_entry(offset)
        try:
            position = self._first_ending_at(offset, start, indexed_offset)
        except KafkaError:
            position = self._position_in_doubt(offset, start)
        if position is not None:
            self.remember(offset, position)
        return position

    def _position_in_doubt(self, offset: Offset, start: int) -> int | None:
        """The batches from `start` are damaged, or the index does not fit them. CORRUPT_MESSAGE when `offset` is lost."""
        from ottla.log.damaged_segment import position_over_damage  # which needs this module, and hardly ever happens

        if start > 0 and not self._doubted:
            self._doubted = True
            with contextlib.suppress(KafkaError):
                self._reindex()
                start = self.offset_index.lookup(offset)
        return position_over_damage(self, offset, start)

    def _reindex(self) -> None:
        """Make the offset index again from the batches, unless these are damaged: then what there is of it is needed."""
        entries, indexed_at = [], 0
        for position, header in self.walk():
            if position - indexed_at > LOOKUP_BYTES:
                entries.append((header.last_offset, position))
                indexed_at = position
        self.offset_index.reset()
        for last_offset, position in entries:
            self.offset_index.append(last_offset, position)

    def _first_ending_at(self, offset: Offset, start: int, indexed_offset: Offset) -> int | None:
        """The position of the first batch from `start` on that ends at or after `offset`. By the index, the batch at
        `start` ends at `indexed_offset` (-1: the index has no entry).
        """
        for position, header in self.headers_from(start):
            if indexed_offset >= 0 and not self.base_offset <= header.base_offset <= indexed_offset:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path(INDEX_SUFFIX)} does not fit its log")
            indexed_offset = -1
            if header.base_offset + header.last_offset_delta >= offset:
                return position
        return None

    def headers_from(self, position: int = 0, *, chunk_bytes: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        if position >= self.size:
            return iter(())
        if chunk_bytes is None:
            return scan_headers(self.file, position, self.size)
        return scan_headers(self.file, position, self.size, chunk_bytes=chunk_bytes)

    def walk(self) -> Iterator[tuple[int, BatchHeader]]:
        """Every batch header, with large reads."""
        return self.headers_from(0, chunk_bytes=WALK_BYTES)

    def whole_batches_end(self, position: int, limit: int) -> tuple[int, Offset | None]:
        """The end of the last batch from `position` that fits before `limit`, and its next offset when known."""
        start = max(self.offset_index.floor_position(limit), position)
        try:
            end, next_offset = self._whole_batches_end(start, limit)
        except KafkaError:
            if start == position:
                raise
            end, next_offset = self._whole_batches_end(position, limit)
        if next_offset is not None:
            self.remember(next_offset, end)
        return end, next_offset

    def _whole_batches_end(self, start: int, limit: int) -> tuple[int, Offset | None]:
        end, next_offset = start, None
        try:
            for at, header in self.headers_from(start):
                size = header.batch_length + LOG_OVERHEAD
                if at + size > limit:
                    self.remember(header.base_offset, at)  # the next read starts here
                    break
                end, next_offset = at + size, header.base_offset + header.last_offset_delta + 1
        except KafkaError:
            if end == start:
                raise
        return end, next_offset

    def read_next_offset(self) -> Offset:
        """The offset after the last batch, by a walk from the last index entry."""
        index = self.offset_index
        next_offset = self.base_offset
        for _, header in self.headers_from(index.lookup(index.last_offset)):
            next_offset = header.base_offset + header.last_offset_delta + 1
        return next_offset

    # ------------------------------------------------------------------------------------------------ timestamps

    def _load_max_timestamp(self) -> None:
        self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry()

    @property
    def max_timestamp(self) -> TimestampMs:
        """The largest timestamp of any batch, -1 without one."""
        if self._max_timestamp == _NOT_LOADED:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> Offset:
        """The last offset of the batch with the largest timestamp."""
        if self._max_timestamp == _NOT_LOADED:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    @property
    def largest_timestamp(self) -> TimestampMs:
        """What retention goes by: the largest timestamp, or the file's own time when records carry none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._storage.modified_ms(self.path(LOG_SUFFIX))

    @property
    def first_timestamp(self) -> TimestampMs:
        """The largest timestamp of the first batch, -1 without one: what `segment.ms` counts from."""
        if self._first_timestamp == _NOT_LOADED and self.size:
            try:
                self._first_timestamp = next((header.max_timestamp for _, header in self.headers_from()), NO_TIMESTAMP)
            except KafkaError:
                self._first_timestamp = NO_TIMESTAMP  # damaged: a read reports it, an append goes on
        return self._first_timestamp if self.size else NO_TIMESTAMP

    def waited_for_roll_ms(self, now_ms: TimestampMs, message_timestamp: TimestampMs) -> int:
        """What `segment.ms` is compared with: the time between the records, or since creation without timestamps."""
        first = self._first_timestamp
        if first == _NOT_LOADED:
            first = self.first_timestamp
        waited = message_timestamp - first if first >= 0 else now_ms - self.created_ms
        return waited + self.roll_jitter_ms

    # ------------------------------------------------------------------------------------------------ changing

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> int:
        """Drop every batch that ends at or after `offset`; returns the bytes dropped."""
        position = self.position_of(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.flush_indexes()
        truncate_aborted(self._storage, self.path(TXN_INDEX_SUFFIX), offset)
        self.has_aborted = None
        self._positions = None
        dropped = 0
        if position is not None:
            dropped = self.size - position
            self.cut(position)
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = _NOT_LOADED
        self._bytes_since_index = 0
        self._reload_max_timestamp()
        return dropped

    def cut(self, size: int) -> None:
        """Shorten the `.log` to its good bytes."""
        self.file.truncate(size)
        self.size = size

    def _reload_max_timestamp(self) -> None:
        """The last time index entry may be behind the batches after it."""
        self._load_max_timestamp()
        for _, header in self.headers_from(self.offset_index.lookup(self._max_timestamp_offset)):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.base_offset + header.last_offset_delta

    def reset_indexes(self) -> None:
        """Start the indexes from nothing: recovery walks the batches and notes each again."""
        self.offset_index.reset()
        self.time_index.reset()
        self._storage.remove(self.path(TXN_INDEX_SUFFIX))
        self._aborted_tail = None
        self.has_aborted = False
        self._bytes_since_index = 0
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = _NOT_LOADED
        self._positions = None

    def look_for_aborted(self) -> bool:
        """`has_aborted`, from the disk if unknown. The result is kept, because each read_committed fetch needs it for
        each segment.
        """
        if self.has_aborted is None:
            self.has_aborted = bool(self._aborted_tail) or self._storage.exists(self.path(TXN_INDEX_SUFFIX))
        return self.has_aborted

    def aborted_transactions(self) -> Sequence[AbortedTxn]:
        return [*read_aborted(self._storage, self.path(TXN_INDEX_SUFFIX)), *(self._aborted_tail or ())]
