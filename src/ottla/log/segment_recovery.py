"""Reading one segment again, batch by batch, and rebuilding everything that is derived from it."""

from __future__ import annotations

from ottla.log.batch_scan import is_old_format, unreadable_format
from ottla.log.epoch_cache import EpochCache
from ottla.log.indexes import MAX_RELATIVE_OFFSET
from ottla.log.producer_rebuild import replay_batch
from ottla.log.producer_state import ProducerState
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTxn
from ottla.model.ids import Offset
from ottla.protocol.crc32c import crc32c
from ottla.protocol.records_header import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    parse_header,
)

_CHUNK_BYTES = 4 << 20
"""The CRC covers a batch from its attributes on."""


def recover_segment(
    segment: Segment, next_offset: Offset, epochs: EpochCache, producers: ProducerState, index_interval: int
) -> tuple[Offset, int]:
    """Check every batch from `next_offset` on; cut the file at the first flaw.

    Returns the offset after the last good batch and how many bytes were cut.
    """
    segment.reset_indexes()
    position = 0
    file_size = segment.size
    while file_size - position >= HEADER_BYTES:
        chunk = segment.file.pread(min(_CHUNK_BYTES, file_size - position), position)
        used, next_offset = _recover_chunk(segment, chunk, position, next_offset, epochs, producers, index_interval)
        if used == 0:
            size = _whole_batch(segment, chunk, position, file_size)
            if size == 0:
                break
            chunk = segment.file.pread(size, position)
            used, next_offset = _recover_chunk(segment, chunk, position, next_offset, epochs, producers, index_interval)
            if used == 0:
                break
        position += used
    if position < file_size:
        segment.cut(position)
    return next_offset, file_size - position


def _whole_batch(segment: Segment, chunk: bytes, position: int, end: int) -> int:
    """The size of a batch that is larger than the chunk; 0 when it is not that."""
    if len(chunk) < HEADER_BYTES:
        return 0
    header = parse_header(chunk, 0)
    if is_old_format(segment.file, position, end, header):
        # Old formats are whole and good: cutting them off as corrupt would lose what Kafka can still read.
        raise unreadable_format(segment.file.path, position, header.magic)
    return header.size if len(chunk) < header.size <= end - position else 0


def _recover_chunk(
    segment: Segment,
    chunk: bytes,
    position: int,
    next_offset: Offset,
    epochs: EpochCache,
    producers: ProducerState,
    index_interval: int,
) -> tuple[int, Offset]:
    """Note the good batches at the start of `chunk`; returns the bytes used and the next offset."""
    at = 0
    length = len(chunk)
    view = memoryview(chunk)
    while length - at >= HEADER_BYTES:
        header = parse_header(chunk, at)
        size = header.batch_length + LOG_OVERHEAD
        if not _plausible(segment, header, size, next_offset) or at + size > length:
            break
        if crc32c(view[at + CRC_COVERS_FROM : at + size]) != header.crc:
            break
        last_offset = header.base_offset + header.last_offset_delta
        segment.note_batch(position + at, last_offset, header, index_interval)
        if header.leader_epoch >= 0 and header.leader_epoch != epochs.epoch_for_offset(header.base_offset):
            epochs.correct(header.leader_epoch, header.base_offset)
        note_producer(segment, producers, header, chunk, at)
        next_offset = last_offset + 1
        at += size
    return at, next_offset


def _plausible(segment: Segment, header: BatchHeader, size: int, next_offset: Offset) -> bool:
    return (
        size >= HEADER_BYTES
        and header.magic == MAGIC_V2
        and header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.base_offset + header.last_offset_delta - segment.base_offset <= MAX_RELATIVE_OFFSET
    )


def note_producer(segment: Segment, producers: ProducerState, header: BatchHeader, chunk: bytes, at: int) -> None:
    """Update the producer state from the batch; an abort marker is added to the transaction index."""
    completed = replay_batch(producers, header, chunk, at)
    if completed is None:
        return
    stable = producers.complete(completed)
    if completed.aborted:
        segment.note_aborted(AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable))
