"""Reading batch headers from a segment file, one after the other, without their records.

Stops at the end that it is given and at the first batch that does not fit before it. Nothing is checked beyond what
is needed to step to the next batch: CRCs were checked before the bytes were written and are again by recovery.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.env.seams import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.records_header import HEADER_BYTES, LOG_OVERHEAD, MAGIC_V2, BatchHeader, parse_header

LOOKUP_BYTES = 4096
"""An index entry is at most about this far from the batch it is asked for."""
WALK_BYTES = 1 << 20


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
        if header.magic != MAGIC_V2:
            raise unreadable_format(file.path, position, header.magic)
        if size < HEADER_BYTES or position + size > end:
            return
        yield position, header
        position += size


def unreadable_format(path: str, position: int, magic: int) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{path} holds a batch of magic {magic} at position {position}; only magic 2 (Kafka 0.11 and later) is read",
    )
