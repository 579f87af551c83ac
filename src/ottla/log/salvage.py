"""Segments that were whole once and are damaged now: after a clean stop, or below the recovery point, nothing is torn.

So every batch that can still be read is kept: the indexes are rebuilt around the damaged bytes. The caller cuts bytes
off only at the log's end where no batch follows them, because the next append would stand behind them. A batch of which
only the checksum is wrong stays in place; its reader detects the wrong checksum.
"""

from __future__ import annotations

from ottla.env.logging import get_logger
from ottla.env.seams import Storage
from ottla.log.damaged_segment import NO_LIMIT, batches_that_remain
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from ottla.log.producer_state import ProducerState
from ottla.log.segment import Segment
from ottla.log.segment_recovery import note_producer
from ottla.log.transaction_index import aborted_sane
from ottla.model.errors import KafkaError
from ottla.model.ids import Offset
from ottla.protocol.records_header import CONTROL_MASK

_log = get_logger(__name__)


def sound_end(segment: Segment, no_leap_over: Offset) -> Offset | None:
    """The offset after the last batch, by a walk from the last index entry; None when the file does not end with it.

    A base offset has no checksum, and one wrong bit of it moves the log's end by millions. The last segment has no holes:
    a batch that leaps over `no_leap_over`, where the log ended, is damaged.
    """
    index = segment.offset_index
    end = start = index.lookup(index.last_offset)
    next_offset = index.last_offset if start else segment.base_offset
    try:
        for position, header in segment.headers_from(start):
            if header.base_offset > next_offset and header.last_offset >= no_leap_over:
                return None
            end = position + header.size
            next_offset = header.next_offset
    except KafkaError:
        return None
    return next_offset if end == segment.size else None


def indexes_sane(storage: Storage, segment: Segment) -> bool:
    """Whether the index files can be what was written for this `.log`; a cheap look at their ends."""
    index_size = storage.size(segment.path(INDEX_SUFFIX))
    time_index_size = storage.size(segment.path(TIME_INDEX_SUFFIX))
    if time_index_size == 0:
        # Rolling and closing leave the largest timestamp in it; only records without timestamps leave none.
        return segment.size == 0
    index, time_index = segment.offset_index, segment.time_index
    # Half an entry, or zeros that were never trimmed.
    if len(index) * index.ENTRY.size != index_size or len(time_index) * time_index.ENTRY.size != time_index_size:
        return False
    return index.is_sane(segment.size) and time_index.is_sane() and _aborted_sane(storage, segment)


def _aborted_sane(storage: Storage, segment: Segment) -> bool:
    """Whole entries of this segment. An empty file means that its contents were lost: the log never creates one."""
    path = segment.path(TXN_INDEX_SUFFIX)
    return not storage.exists(path) or aborted_sane(storage.read_bytes(path), segment.base_offset)


def rebuild_indexes(
    segment: Segment, limit: Offset, no_leap_over: Offset, producers: ProducerState, index_interval: int
) -> tuple[Offset, int]:
    """Builds the indexes from every batch that can be read. Returns the offset after the last batch and the end of that batch in the file.

    `limit` is the base offset of the segment that follows; `no_leap_over` as for `sound_end`.
    """
    segment.reset_indexes()
    expected = 0
    end_offset = segment.base_offset
    for position, header in batches_that_remain(segment, limit, no_leap_over=no_leap_over):
        hole = position - expected
        if hole:
            _log.warning("log.damaged", path=segment.path(LOG_SUFFIX), position=expected, bytes=hole, offset=end_offset)
        # Behind a hole an entry of its own: a look-up that started before it would end there.
        segment.note_batch(position, header.last_offset, header, -1 if hole else index_interval)
        control = header.producer_id >= 0 and header.attributes & CONTROL_MASK
        note_producer(segment, producers, header, segment.file.pread(header.size, position) if control else b"", 0)
        expected = position + header.size
        end_offset = header.next_offset
    damaged_bytes = segment.size - expected
    if damaged_bytes:
        _log.warning(
            "log.damaged", path=segment.path(LOG_SUFFIX), position=expected, bytes=damaged_bytes, offset=end_offset
        )
    segment.finish_indexes()
    return end_offset, expected


def rebuild_epochs(segments: list[Segment], epochs: EpochCache) -> None:
    """The checkpoint is lost: take the leader epochs from the batch headers."""
    for number, segment in enumerate(segments):
        limit = segments[number + 1].base_offset if number + 1 < len(segments) else NO_LIMIT
        for _, header in batches_that_remain(segment, limit):
            if header.leader_epoch > epochs.latest_epoch:
                epochs.assign(header.leader_epoch, header.base_offset)
