"""What a restore writes of a partition: the batches that readers of committed records get, in pieces without holes.

A batch stays byte-equal behind its header if all its records remain. The header loses the producer: a new cluster refuses
producers and transactions that it does not have. Records of aborted transactions, markers and compacted records are holes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.backup.manifest import BackupError, SavedPartition, SavedSegment
from ottla.model.errors import KafkaError
from ottla.protocol.records_build import ControlType, SimpleRecord, build_batch, parse_control_key
from ottla.protocol.records_header import (
    LOG_APPEND_TIME,
    TRANSACTIONAL_MASK,
    BatchHeader,
    crc_matches,
    iterate_batches,
    pack_header,
    write_crc,
)
from ottla.protocol.records_walk import Record, iterate_records

if TYPE_CHECKING:
    from ottla.cli.backup.store import BackupStore


class Piece(NamedTuple):
    first: int
    record_count: int
    batch: bytes

    @property
    def end(self) -> int:
        return self.first + self.record_count


def segment_content(store: BackupStore, segment: SavedSegment) -> bytes:
    """Raises BackupError if the file is missing or differs from what was written."""
    size = store.size(segment.file)
    if size is not None and size != segment.size:  # before the content is read: the file may be huge
        raise BackupError(f"{segment.file} is damaged: {size:,} bytes instead of {segment.size:,}")
    content = None if size is None else store.read(segment.file)
    if content is None:
        raise BackupError(f"{segment.file} is missing")
    if len(content) != segment.size or hashlib.sha256(content).hexdigest() != segment.sha256:
        raise BackupError(f"{segment.file} is damaged: its checksum differs")
    for at, header in iterate_batches(content):
        if not crc_matches(content, at, header.size):
            raise BackupError(f"{segment.file} is damaged: the batch at offset {header.base_offset} has a wrong CRC")
    return content


def pieces(store: BackupStore, partition: SavedPartition) -> Iterator[Piece]:
    """In the order of offsets."""
    for segment in partition.segments:
        content = memoryview(segment_content(store, segment))
        waiting = sorted(((first, producer) for producer, first in segment.aborted), reverse=True)
        aborted: set[int] = set()
        for at, header in iterate_batches(content):
            while waiting and waiting[-1][0] <= header.last_offset:
                aborted.add(waiting.pop()[1])
            batch = content[at : at + header.size]
            if header.is_control:
                if header.producer_id in aborted and _aborts(batch):
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                yield from _of_batch(batch, header, partition)


def _of_batch(batch: memoryview, header: BatchHeader, partition: SavedPartition) -> Iterator[Piece]:
    if header.record_count == 0 or header.last_offset < partition.start or header.base_offset >= partition.end:
        return
    whole = header.record_count == header.last_offset_delta + 1 and header.base_offset >= partition.start
    if whole and not header.has_delete_horizon and header.timestamp_type != LOG_APPEND_TIME:
        yield Piece(header.base_offset, header.record_count, _without_producer(batch, header))
        return
    records = (record for record in iterate_records(batch) if record.offset >= partition.start)
    for run in _runs(records):
        rows = [SimpleRecord(record.timestamp, record.key, record.value, record.headers) for record in run]
        yield Piece(run[0].offset, len(run), bytes(build_batch(rows, compression=header.compression)))


def _without_producer(batch: memoryview, header: BatchHeader) -> bytes:
    anonymous = header._replace(
        base_offset=0,
        leader_epoch=-1,
        attributes=header.attributes & ~TRANSACTIONAL_MASK,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    packed = pack_header(anonymous)
    content = bytearray(packed) + batch[len(packed) :]
    write_crc(content, 0, len(content))
    return bytes(content)


def _runs(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Records with consecutive offsets."""
    run: list[Record] = []
    for record in records:
        if run and record.offset != run[-1].offset + 1:
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def _aborts(batch: memoryview) -> bool:
    try:
        marker = next(iter(iterate_records(batch)))
        return parse_control_key(marker.key)[1] == ControlType.ABORT
    except (StopIteration, KafkaError):
        return False
