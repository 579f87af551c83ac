"""Reading batch headers from a segment file, one after the other, without their records.

Nothing is checked beyond what is needed to step to the next batch: CRCs were checked before the bytes were written and
are again by recovery. Bytes that cannot be a batch are an error, not the end of the segment: otherwise a reader would
skip all batches after them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from ottla.env.seams import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.records_header import HEADER_BYTES, LOG_OVERHEAD, MAGIC_V2, BatchHeader, parse_header

LOOKUP_BYTES = 4096
"""A lookup in the index returns a position at most about this many bytes before the batch."""
WALK_BYTES = 1 << 20
_OLD_HEADER_BYTES = 26
"""Offset, size, CRC, magic, attributes and the lengths of key and value."""


def scan_headers(
    file: File, position: int, end: int, *, chunk_bytes: int = LOOKUP_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position`, which must be the start of one, up to `end`."""
    chunk = b""
    chunk_start = position
    while end - position >= HEADER_BYTES:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.pread(min(chunk_bytes, end - position), position)
            chunk_start = position
            at = 0
            if len(chunk) < HEADER_BYTES:
                return
        header = parse_header(chunk, at)
        size = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC_V2 or size < HEADER_BYTES or position + size > end:
            if is_old_format(file, position, end, header):
                raise unreadable_format(file.path, position, header.magic)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{file.path} is damaged at position {position}")
        yield position, header
        position += size


def is_old_format(file: File, position: int, end: int, header: BatchHeader) -> bool:
    """Whether a whole message of magic 0 or 1 stands at `position`: by its checksum, for zeros look like magic 0 too."""
    if header.magic not in (0, 1) or not _OLD_HEADER_BYTES <= header.size <= end - position:
        return False
    data = file.pread(header.size, position)
    return zlib.crc32(memoryview(data)[16:]) == int.from_bytes(data[12:16], "big")


def unreadable_format(path: str, position: int, magic: int) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{path} holds a batch of magic {magic} at position {position}; only magic 2 (Kafka 0.11 and later) is read",
    )
