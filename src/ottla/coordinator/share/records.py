"""The records of `__share_group_state`, as Kafka 4.3 writes them: a snapshot of a share-partition, and updates to it.

A key is its record type (int16) and the generated key message; a value its version (int16) and the generated value. A
snapshot without a value deletes the share-partition. A record of an unknown type is skipped (`decode` returns None).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.coordinator.share.batches import StateBatch
from ottla.model.ids import Uuid, uuid_to_str
from ottla.protocol.generated import share_snapshot_value, share_update_value
from ottla.protocol.generated.share_snapshot_key import ShareSnapshotKey
from ottla.protocol.generated.share_snapshot_value import ShareSnapshotValue
from ottla.protocol.generated.share_update_key import ShareUpdateKey
from ottla.protocol.generated.share_update_value import ShareUpdateValue
from ottla.protocol.primitives import DecodeError

_INT16 = Struct(">h")
_SNAPSHOT = 0
_UPDATE = 1
_VERSION = 0


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        """The key's text in FindCoordinator; its hash selects the partition of the state topic."""
        return f"{self.group_id}:{uuid_to_str(self.topic_id)}:{self.partition}"


class SnapshotRecord(NamedTuple):
    key: SharePartitionKey
    value: ShareSnapshotValue | None


class UpdateRecord(NamedTuple):
    key: SharePartitionKey
    value: ShareUpdateValue


ShareRecord: TypeAlias = SnapshotRecord | UpdateRecord


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, SnapshotRecord):
        key = _INT16.pack(_SNAPSHOT) + ShareSnapshotKey(*record.key).to_bytes(_VERSION)
    else:
        key = _INT16.pack(_UPDATE) + ShareUpdateKey(*record.key).to_bytes(_VERSION)
    value = None if record.value is None else _INT16.pack(_VERSION) + record.value.to_bytes(_VERSION)
    return key, value


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """The record, or None for a record of a different type; raises DecodeError when the bytes are not a record."""
    if len(key) < 2:
        raise DecodeError("a coordinator record's key has at least two bytes")
    key_type = _INT16.unpack_from(key)[0]
    if value is not None and len(value) < 2:
        raise DecodeError("a coordinator record's value has at least two bytes")
    if key_type == _SNAPSHOT:
        snapshot, _ = ShareSnapshotKey.decode(key, 2, _VERSION)
        named = SharePartitionKey(snapshot.group_id, snapshot.topic_id, snapshot.partition)
        if value is None:
            return SnapshotRecord(named, None)
        return SnapshotRecord(named, ShareSnapshotValue.decode(value, 2, _INT16.unpack_from(value)[0])[0])
    if key_type == _UPDATE and value is not None:
        update, _ = ShareUpdateKey.decode(key, 2, _VERSION)
        named = SharePartitionKey(update.group_id, update.topic_id, update.partition)
        return UpdateRecord(named, ShareUpdateValue.decode(value, 2, _INT16.unpack_from(value)[0])[0])
    return None


def snapshot_batches(batches: tuple[StateBatch, ...]) -> list[share_snapshot_value.StateBatch]:
    return [share_snapshot_value.StateBatch(b.first_offset, b.last_offset, *reversed(b.standing)) for b in batches]


def update_batches(batches: tuple[StateBatch, ...]) -> list[share_update_value.StateBatch]:
    return [share_update_value.StateBatch(b.first_offset, b.last_offset, *reversed(b.standing)) for b in batches]
