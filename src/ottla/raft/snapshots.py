"""Snapshot files: `<end offset>-<epoch>.checkpoint`, a header record, batches of metadata records, a footer record.

A snapshot replaces every record below its end offset. A file with a footer is complete; the file gets its name only
after it is written and synced. The name 0-0 is the bootstrap checkpoint that formatting writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.env.seams import Storage
from ottla.model.errors import KafkaError
from ottla.protocol.generated.k_raft_version_record import KRaftVersionRecord
from ottla.protocol.generated.snapshot_footer_record import SnapshotFooterRecord
from ottla.protocol.generated.snapshot_header_record import SnapshotHeaderRecord
from ottla.protocol.generated.voters_record import VotersRecord
from ottla.protocol.primitives import DecodeError, Message
from ottla.protocol.records import SimpleRecord, build_batch, crc_matches, iterate_batches, iterate_records
from ottla.raft.control import control_batch, decode_control, quorum_records
from ottla.raft.errors import SnapshotError
from ottla.raft.voters import VoterSet

MAX_BATCH_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_LEFTOVERS = (".checkpoint.part", ".checkpoint.tmp", ".checkpoint.deleted")


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int

    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)


@dataclass(slots=True)
class Snapshot:
    """The content of a snapshot file: the metadata frames and the quorum."""

    last_contained_timestamp: int = 0
    kraft_version: int = 0
    voters: VoterSet | None = None
    frames: list[bytes] = field(default_factory=list)


def list_snapshots(storage: Storage, log_dir: str) -> list[SnapshotId]:
    """The snapshots of a directory, oldest first. Incomplete files of a crash are removed."""
    snapshot_ids = []
    for name in storage.list_dir(log_dir):
        match = _NAME.fullmatch(name)
        if match:
            snapshot_ids.append(SnapshotId(int(match[1]), int(match[2])))
        elif name.endswith(_LEFTOVERS):
            storage.remove(f"{log_dir}/{name}")
    return sorted(snapshot_ids)


def encode_snapshot(
    frames: Iterable[bytes],
    *,
    epoch: int,
    last_contained_timestamp: int,
    now_ms: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> bytes:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp)
    head = [header, *quorum_records(kraft_version, voters)]
    pieces = [control_batch(head, base_offset=0, epoch=epoch, now_ms=now_ms)]
    offset = len(head)
    for group in frame_groups(frames):
        records = [SimpleRecord(now_ms, None, frame) for frame in group]
        pieces.append(build_batch(records, base_offset=offset, leader_epoch=epoch))
        offset += len(group)
    pieces.append(control_batch([SnapshotFooterRecord(version=0)], base_offset=offset, epoch=epoch, now_ms=now_ms))
    return b"".join(pieces)


def frame_groups(frames: Iterable[bytes], limit: int = MAX_BATCH_BYTES) -> Iterator[list[bytes]]:
    """Groups of frames that fit a batch each; 32 bytes cover the overhead of a record."""
    group: list[bytes] = []
    size = 0
    for frame in frames:
        if group and size + len(frame) + 32 > limit:
            yield group
            group, size = [], 0
        group.append(frame)
        size += len(frame) + 32
    if group:
        yield group


def decode_snapshot(data: bytes, name: str) -> Snapshot:
    """Raises SnapshotError unless header, every CRC and footer are right."""
    try:
        return _decode(data, name)
    except (KafkaError, DecodeError) as error:
        raise SnapshotError(f"snapshot {name} is damaged: {error}") from error


def _decode(data: bytes, name: str) -> Snapshot:
    snapshot = Snapshot()
    footer = False
    end = 0
    for position, header in iterate_batches(data):
        if footer or not crc_matches(data, position, header.size):
            raise SnapshotError(f"snapshot {name} is damaged at byte {position}")
        if not header.is_control:
            snapshot.frames.extend(record.value or b"" for record in iterate_records(data, position))
        else:
            for record in iterate_records(data, position):
                footer = _apply_control(snapshot, decode_control(record), is_first=record.offset == 0) or footer
        end = position + header.size
    if not footer or end != len(data):
        raise SnapshotError(f"snapshot {name} is incomplete: it has no footer")
    return snapshot


def _apply_control(snapshot: Snapshot, record: Message | None, *, is_first: bool) -> bool:
    """Returns whether the record is the footer."""
    if is_first != isinstance(record, SnapshotHeaderRecord):
        raise SnapshotError("a snapshot must begin with its header record and have no second header record")
    if isinstance(record, SnapshotHeaderRecord):
        snapshot.last_contained_timestamp = record.last_contained_log_timestamp
    elif isinstance(record, KRaftVersionRecord):
        snapshot.kraft_version = record.k_raft_version
    elif isinstance(record, VotersRecord):
        snapshot.voters = VoterSet.from_record(record)
    return isinstance(record, SnapshotFooterRecord)
