"""One partition as batches: fetched up to the last stable offset, checked, and stored in files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.cli.backup.manifest import BackupError, SavedPartition, SavedSegment
from ottla.client.errors import check
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.fetch_response import FetchResponse, PartitionData
from ottla.protocol.records_header import BatchHeader, crc_matches, iterate_batches

if TYPE_CHECKING:
    from ottla.cli.backup.store import BackupStore
    from ottla.client.cluster import Cluster

SEGMENT_BYTES = 64 << 20
_FETCH_BYTES = 8 << 20
_NAME_DIGITS = 16
_READ_COMMITTED = 1
_NO_SESSION = -1
_BY_NAME = 12
"""From version 13 on a request names topics by id."""


class _OpenSegment:
    def __init__(self, first: int) -> None:
        self.first = first
        self.content = bytearray()
        self.epoch = -1
        self.aborted: set[tuple[int, int]] = set()


def save_partition(
    cluster: Cluster,
    store: BackupStore,
    folder: str,
    topic: str,
    partition: SavedPartition,
    on_segment: Callable[[], None],
) -> None:
    """Appends the missing segments to `partition`, from the last of its segments to its end."""
    position = partition.segments[-1].end if partition.segments else partition.start
    segment = _OpenSegment(position)
    while position < partition.end:
        answer = _fetch(cluster, topic, partition, position)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset > position:
            position = partition.start = min(answer.log_start_offset, partition.end)  # retention was faster
            partition.segments.clear()
            segment = _OpenSegment(position)
            continue
        check(answer.error_code)
        following = position
        for batch, header in _batches(answer, topic, position, partition.end):
            segment.content += batch
            segment.epoch = header.leader_epoch
            following = header.next_offset
        segment.aborted |= {(row.producer_id, row.first_offset) for row in answer.aborted_transactions or ()}
        position = following if following > position else partition.end  # nothing is left: compaction took the end
        if len(segment.content) >= SEGMENT_BYTES:
            partition.segments.append(_stored(store, folder, segment, position))
            on_segment()
            segment = _OpenSegment(position)
    if segment.content:
        partition.segments.append(_stored(store, folder, segment, position))


def _stored(store: BackupStore, folder: str, segment: _OpenSegment, end: int) -> SavedSegment:
    content = bytes(segment.content)
    digest = hashlib.sha256(content).hexdigest()
    # With its checksum in its name a file is never changed: an earlier backup may use the file too.
    file = f"{folder}/{segment.first}-{end}-{digest[:_NAME_DIGITS]}.log"
    if store.size(file) != len(content) or store.read(file) != content:
        store.write(file, content)
    return SavedSegment(
        file=file,
        first=segment.first,
        end=end,
        size=len(content),
        sha256=digest,
        epoch=segment.epoch,
        aborted=sorted(map(list, segment.aborted)),
    )


def _batches(answer: PartitionData, topic: str, start: int, end: int) -> Iterator[tuple[bytes, BatchHeader]]:
    records = memoryview(answer.records) if answer.records is not None else memoryview(b"")
    for at, header in iterate_batches(records):
        if header.base_offset >= end:
            return
        if header.last_offset < start:
            continue
        if not crc_matches(records, at, header.size):
            raise BackupError(f"{topic}: the batch at offset {header.base_offset} has a wrong CRC")
        yield bytes(records[at : at + header.size]), header


def _fetch(cluster: Cluster, topic: str, partition: SavedPartition, offset: int) -> PartitionData:
    from ottla.client.topics import leaders_of

    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=_READ_COMMITTED,
        session_epoch=_NO_SESSION,
        topics=[
            FetchTopic(
                topic,
                partitions=[FetchPartition(partition.index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)],
            )
        ],
    )

    def attempt(deadline: float) -> PartitionData:
        del deadline  # each call has its own
        leader = leaders_of(cluster, [topic])[topic, partition.index]
        answer = cluster.node_attempt(leader, request, FetchResponse, _BY_NAME)
        check(answer.error_code)
        if not answer.responses:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a quota delays the records")
        row = answer.responses[0].partitions[0]
        if row.error_code and ErrorCode(row.error_code).retriable:
            check(row.error_code)
        if not row.error_code and not row.records and row.last_stable_offset < partition.end:
            # A new leader has the records, but does not know yet that they are committed. They are no hole.
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition.index} ends before offset {partition.end:,}"
            )
        return row

    return cluster.retried("fetch", attempt)
