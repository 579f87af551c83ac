"""What can still be read of a segment that is damaged: every sound batch, whatever lies between them.

A batch counts as sound when its checksum is right, or when at least its length is: the file ends behind it or another
batch begins there. Behind a stretch that is neither, the next batch with a right checksum is looked for byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.log.batch_scan import WALK_BYTES, is_old_format, unreadable_format
from ottla.log.file_names import LOG_SUFFIX
from ottla.log.indexes import MAX_RELATIVE_OFFSET
from ottla.log.segment import Segment
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Offset
from ottla.protocol.crc32c import crc32c
from ottla.protocol.records_header import CRC_COVERS_FROM, HEADER_BYTES, MAGIC_AT, MAGIC_V2, BatchHeader, parse_header

NO_LIMIT: Offset = 1 << 63
_WINDOW_BYTES = 1 << 20


def headers_over_damage(segment: Segment, start: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches from `start`, without a look at their checksums as long as one follows the other."""
    position, next_offset = start, segment.base_offset
    try:
        for position, header in segment.headers_from(start, chunk_bytes=WALK_BYTES):
            yield position, header
            position, next_offset = position + header.size, header.next_offset  # noqa: PLW2901 - where the flaw is
    except KafkaError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        yield from batches_that_remain(segment, position=position, next_offset=next_offset)


def position_over_damage(segment: Segment, offset: Offset, start: int) -> int | None:
    """Where the first batch from `start` on begins that ends at or after `offset`; None when there is none.

    CORRUPT_MESSAGE when the batch that holds `offset` is damaged: the reader must not skip records without an error.
    """
    expected = start
    for position, header in headers_over_damage(segment, start):
        if position != expected and header.base_offset > offset:
            raise _damaged(segment, expected)
        if header.last_offset >= offset:
            return position
        expected = position + header.size
    if expected < segment.size:
        raise _damaged(segment, expected)
    return None


def _damaged(segment: Segment, position: int) -> KafkaError:
    path = segment.path(LOG_SUFFIX)
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} is damaged at position {position}")


@dataclass(slots=True)
class _Bounds:
    """Limits of a plausible batch."""

    limit: Offset
    """Where the next segment begins."""
    no_leap_over: Offset
    """Where the log was known to end: no batch behind a hole of offsets reaches over it."""

    def allow(self, segment: Segment, position: int, header: BatchHeader, next_offset: Offset) -> bool:
        return (
            header.magic == MAGIC_V2
            and HEADER_BYTES <= header.size <= segment.size - position
            and next_offset <= header.base_offset <= header.last_offset < self.limit
            and header.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
            and (header.base_offset == next_offset or header.last_offset < self.no_leap_over)
        )


def batches_that_remain(
    segment: Segment,
    limit: Offset = NO_LIMIT,
    *,
    no_leap_over: Offset = NO_LIMIT,
    position: int = 0,
    next_offset: Offset = 0,
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch from `position` that can be read; `limit` is where the next segment begins."""
    bounds = _Bounds(limit, no_leap_over)
    next_offset = max(next_offset, segment.base_offset)
    while segment.size - position >= HEADER_BYTES:
        header = _header_at(segment, position, next_offset, bounds)
        if header is None or not _sound(segment, position, header, bounds):
            next_batch = _next_sound(segment, position + 1, next_offset, bounds)
            if next_batch is None:
                return
            position, header = next_batch
        yield position, header
        position += header.size
        next_offset = header.next_offset


def _header_at(segment: Segment, position: int, next_offset: Offset, bounds: _Bounds) -> BatchHeader | None:
    """The header at `position` when it can be one that follows `next_offset`."""
    data = segment.file.pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return None
    header = parse_header(data, 0)
    if is_old_format(segment.file, position, segment.size, header):
        raise unreadable_format(segment.file.path, position, header.magic)
    return header if bounds.allow(segment, position, header, next_offset) else None


def _sound(segment: Segment, position: int, header: BatchHeader, bounds: _Bounds) -> bool:
    """Right as a whole, or at least in its length: then the file ends behind it or another batch begins there."""
    if _crc_matches(segment, position, header):
        return True
    end = position + header.size
    return end == segment.size or _header_at(segment, end, header.next_offset, bounds) is not None


def _crc_matches(segment: Segment, position: int, header: BatchHeader) -> bool:
    data = segment.file.pread(header.size, position)
    return len(data) == header.size and crc32c(memoryview(data)[CRC_COVERS_FROM:]) == header.crc


def _next_sound(segment: Segment, start: int, next_offset: Offset, bounds: _Bounds) -> tuple[int, BatchHeader] | None:
    """The first batch at or after `start` that is right as a whole."""
    while segment.size - start >= HEADER_BYTES:
        window = segment.file.pread(min(_WINDOW_BYTES + HEADER_BYTES, segment.size - start), start)
        at = window.find(MAGIC_V2, MAGIC_AT)
        while 0 <= at <= len(window) - HEADER_BYTES + MAGIC_AT:
            header = parse_header(window, at - MAGIC_AT)
            position = start + at - MAGIC_AT
            if bounds.allow(segment, position, header, next_offset) and _crc_matches(segment, position, header):
                return position, header
            at = window.find(MAGIC_V2, at + 1)
        start += max(len(window) - HEADER_BYTES, 1)
    return None
