"""A segment of the metadata log: a `.log` file of batches, scanned completely when it is opened.

The metadata log is short (snapshots cut it), so the sparse index stays in memory. It is written in Kafka's `.index` and
`.timeindex` formats when the segment is finished or closed. Kafka always rebuilds both when it opens the metadata log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct

from ottla.env.seams import File, Storage
from ottla.protocol.records import HEADER_BYTES, MAGIC_V2, BatchHeader, crc_matches, parse_header

INDEX_INTERVAL_BYTES = 4096
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


def segment_path(log_dir: str, base_offset: int, suffix: str = "log") -> str:
    return f"{log_dir}/{base_offset:020d}.{suffix}"


class MetadataSegment:
    def __init__(self, storage: Storage, log_dir: str, base_offset: int) -> None:
        self._storage = storage
        self._dir = log_dir
        self.base_offset = base_offset
        self.file: File = storage.open(segment_path(log_dir, base_offset), create=True)
        self.size = 0
        self.next_offset = base_offset
        self.max_timestamp = -1
        self.first_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._times: list[tuple[int, int]] = []
        self._indexed_at = 0

    def scan(self) -> tuple[list[BatchHeader], int]:
        """Read every batch and check its CRC; returns the headers and the bytes past the last good batch."""
        data = self.file.pread(self.file.size(), 0)
        headers: list[BatchHeader] = []
        while (header := _whole_batch(data, self.size, self.next_offset)) is not None:
            headers.append(header)
            self._note(header)
        return headers, len(data) - self.size

    def append(self, batch: bytes | bytearray) -> None:
        self.file.pwrite(batch, self.size)
        self._note(parse_header(batch, 0))

    def _note(self, header: BatchHeader) -> None:
        if self.size - self._indexed_at > INDEX_INTERVAL_BYTES:
            self._offsets.append(header.last_offset)
            self._positions.append(self.size)
            self._indexed_at = self.size
            if not self._times or self.max_timestamp > self._times[-1][0]:
                self._times.append((self.max_timestamp, self._max_timestamp_offset))
        if self.first_timestamp < 0:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        self.size += header.size
        self.next_offset = header.next_offset

    def batches(self, start_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """The batches that hold `start_offset` or later offsets, with their bytes."""
        index = bisect_right(self._offsets, start_offset - 1) - 1
        position = self._positions[index] if index >= 0 else 0
        while position < self.size:
            header = parse_header(self.file.pread(HEADER_BYTES, position), 0)
            if header.last_offset >= start_offset:
                yield header, self.file.pread(header.size, position)
            position += header.size

    def truncate(self, end_offset: int) -> None:
        """Drop the batch that holds `end_offset` and all later batches, and sync."""
        size = 0
        for header, _ in self.batches(self.base_offset):
            if header.last_offset >= end_offset:
                break
            size += header.size
        self.file.truncate(size)
        self.file.sync()
        self._reset()
        self.scan()

    def cut_tail(self) -> None:
        """Drop the bytes past the last good batch."""
        self.file.truncate(self.size)
        self.file.sync()

    def finish(self) -> None:
        """Sync the batches and write both index files."""
        self.file.sync()
        offsets = b"".join(
            _OFFSET_ENTRY.pack(offset - self.base_offset, position)
            for offset, position in zip(self._offsets, self._positions, strict=True)
        )
        times = self._times
        if self.max_timestamp >= 0 and (not times or self.max_timestamp > times[-1][0]):
            times = [*times, (self.max_timestamp, self._max_timestamp_offset)]
        entries = b"".join(_TIME_ENTRY.pack(timestamp, offset - self.base_offset) for timestamp, offset in times)
        for suffix, data in (("index", offsets), ("timeindex", entries)):
            index = self._storage.open(segment_path(self._dir, self.base_offset, suffix), create=True)
            index.truncate(0)
            index.pwrite(data, 0)
            index.close()

    def remove(self) -> None:
        self.file.close()
        for suffix in ("log", "index", "timeindex", "snapshot"):
            self._storage.remove(segment_path(self._dir, self.base_offset, suffix))

    def _reset(self) -> None:
        self.size = 0
        self.next_offset = self._max_timestamp_offset = self.base_offset
        self.max_timestamp = self.first_timestamp = -1
        self._offsets, self._positions, self._times, self._indexed_at = [], [], [], 0


def _whole_batch(data: bytes, position: int, next_offset: int) -> BatchHeader | None:
    """The batch at `position` when it is whole, sound and follows its predecessor (the base offset has no CRC)."""
    if len(data) - position < HEADER_BYTES:
        return None
    header = parse_header(data, position)
    if header.magic != MAGIC_V2 or header.batch_length < HEADER_BYTES - 12 or position + header.size > len(data):
        return None
    if header.base_offset != next_offset or header.last_offset_delta < 0:
        return None
    return header if crc_matches(data, position, header.size) else None
