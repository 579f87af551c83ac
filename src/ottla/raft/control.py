"""The quorum's own records: leader changes, snapshot headers and footers, kraft.version and the voter set.

These records are in batches with the control bit. The metadata layer never receives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.model.ids import NodeId, Offset
from ottla.protocol.generated.k_raft_version_record import KRaftVersionRecord
from ottla.protocol.generated.leader_change_message import LeaderChangeMessage, Voter
from ottla.protocol.generated.snapshot_footer_record import SnapshotFooterRecord
from ottla.protocol.generated.snapshot_header_record import SnapshotHeaderRecord
from ottla.protocol.generated.voters_record import VotersRecord
from ottla.protocol.primitives import Message
from ottla.protocol.records import (
    ControlType,
    Record,
    SimpleRecord,
    build_batch,
    control_key,
    iterate_records,
    parse_control_key,
)
from ottla.raft.voters import VoterSet

_TYPES: dict[type[Message], ControlType] = {
    LeaderChangeMessage: ControlType.LEADER_CHANGE,
    SnapshotHeaderRecord: ControlType.SNAPSHOT_HEADER,
    SnapshotFooterRecord: ControlType.SNAPSHOT_FOOTER,
    KRaftVersionRecord: ControlType.KRAFT_VERSION,
    VotersRecord: ControlType.KRAFT_VOTERS,
}
_CLASSES: dict[int, type[Message]] = {control_type: record for record, control_type in _TYPES.items()}


def control_batch(records: Iterable[Message], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    simple = [SimpleRecord(now_ms, control_key(_TYPES[type(r)]), r.to_bytes(0)) for r in records]
    return build_batch(simple, base_offset=base_offset, leader_epoch=epoch, control=True)


def decode_control(record: Record) -> Message | None:
    """The control record, or None for a type that this release does not support."""
    _, control_type = parse_control_key(record.key)
    record_class = _CLASSES.get(control_type)
    if record_class is None:
        return None
    message, _ = record_class.decode(record.value or b"", 0, 0)
    return message


def control_messages(batch: bytes | bytearray | memoryview) -> Iterator[tuple[Offset, Message]]:
    """The control records of a batch that this release supports, with their offsets."""
    for record in iterate_records(batch):
        message = decode_control(record)
        if message is not None:
            yield record.offset, message


def leader_change(leader_id: NodeId, voters: Iterable[NodeId], granting: Iterable[NodeId]) -> LeaderChangeMessage:
    return LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[Voter(voter) for voter in voters],
        granting_voters=[Voter(voter) for voter in granting],
    )


def quorum_records(kraft_version: int, voters: VoterSet | None) -> list[Any]:
    """The records that describe the quorum in a kraft.version 1 log or snapshot; empty for kraft.version 0."""
    if kraft_version < 1 or voters is None:
        return []
    return [KRaftVersionRecord(version=0, k_raft_version=kraft_version), voters.to_record()]
