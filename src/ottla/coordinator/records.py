"""The records of `__consumer_offsets`, as Kafka 4.3 writes them.

A key is its record type (int16) and the generated key message; a value its version (int16) and the generated value. Key
types 0 and 1 are both offset commits, type 2 is the classic group. The other kinds of groups keep several records for
each group (`GroupKindRecord`). A record of an unknown type stays in the log and is skipped on load (`decode` returns
None). Values are written in the versions that Kafka 4.3.1 itself writes.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from struct import Struct
from typing import NamedTuple, TypeAlias, TypeVar

from ottla.model.ids import ZERO_UUID, Uuid
from ottla.protocol.generated.group_metadata_key import GroupMetadataKey
from ottla.protocol.generated.group_metadata_value import GroupMetadataValue
from ottla.protocol.generated.offset_commit_key import OffsetCommitKey
from ottla.protocol.generated.offset_commit_value import OffsetCommitValue
from ottla.protocol.primitives import DecodeError, Message

MessageT = TypeVar("MessageT", bound=Message)

_INT16 = Struct(">h")
_OFFSET_COMMIT_KEY_TYPES = (0, 1)
_OFFSET_COMMIT_KEY_TYPE = 1
_GROUP_METADATA_KEY_TYPE = 2
_GROUP_METADATA_VALUE_VERSION = 3
_OFFSET_COMMIT_VALUE_VERSION = 4
_OFFSET_COMMIT_VALUE_WITH_EXPIRY_VERSION = 1
"""The only version that still carries the expiry of a client's own retention time (OffsetCommit up to v4)."""


class OffsetCommitRecord(NamedTuple):
    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


class GroupMetadataRecord(NamedTuple):
    group_id: str
    value: GroupMetadataValue | None


class GroupKindRecord(NamedTuple):
    """A record of a consumer, share or streams group: its generated key and value.

    The class of the key is the record's type.
    """

    key: Message
    value: Message | None


CoordinatorRecord: TypeAlias = OffsetCommitRecord | GroupMetadataRecord | GroupKindRecord

_KIND_RECORDS = {
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
_KIND_VERSION = 0
"""Of all their keys and values."""


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log; a tombstone has no value."""
    if isinstance(record, OffsetCommitRecord):
        key = _INT16.pack(_OFFSET_COMMIT_KEY_TYPE) + OffsetCommitKey(*record[:3]).to_bytes(0)
        return key, _encode_value(record.value, _offset_value_version(record.value))
    if isinstance(record, GroupMetadataRecord):
        key = _INT16.pack(_GROUP_METADATA_KEY_TYPE) + GroupMetadataKey(record.group_id).to_bytes(0)
        return key, _encode_value(record.value, _GROUP_METADATA_VALUE_VERSION)
    key = _INT16.pack(record.key.API_KEY) + record.key.to_bytes(_KIND_VERSION)
    return key, _encode_value(record.value, _KIND_VERSION)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record, or None for a record of a different protocol; raises DecodeError when the bytes are not a record."""
    if len(key) < 2:
        raise DecodeError("a coordinator record's key has at least two bytes")
    key_type = _INT16.unpack_from(key)[0]
    if key_type in _OFFSET_COMMIT_KEY_TYPES:
        commit, _ = OffsetCommitKey.decode(key, 2, 0)
        offset_value = _decode_value(OffsetCommitValue, value)
        return OffsetCommitRecord(commit.group, commit.topic, commit.partition, offset_value)
    if key_type == _GROUP_METADATA_KEY_TYPE:
        group, _ = GroupMetadataKey.decode(key, 2, 0)
        return GroupMetadataRecord(group.group, _decode_value(GroupMetadataValue, value))
    if key_type in _KIND_RECORDS:
        key_schema, value_schema = _schemas(key_type)
        return GroupKindRecord(key_schema.decode(key, 2, _KIND_VERSION)[0], _decode_value(value_schema, value))
    return None


@cache
def _schemas(key_type: int) -> tuple[type[Message], type[Message]]:
    """Imported when the first such record is read: most nodes never see most kinds."""
    name = _KIND_RECORDS[key_type]
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
    generated = "ottla.protocol.generated"
    key = import_module(f"{generated}.{module}_key")
    value = import_module(f"{generated}.{module}_value")
    return getattr(key, f"{name}Key"), getattr(value, f"{name}Value")


def offset_commit_value(
    offset: int, leader_epoch: int, metadata: str | None, commit_ms: int, expire_ms: int, topic_id: Uuid = ZERO_UUID
) -> OffsetCommitValue:
    return OffsetCommitValue(offset, leader_epoch, metadata or "", commit_ms, expire_ms, topic_id)


def _offset_value_version(value: OffsetCommitValue | None) -> int:
    has_expiry = value is not None and value.expire_timestamp >= 0
    return _OFFSET_COMMIT_VALUE_WITH_EXPIRY_VERSION if has_expiry else _OFFSET_COMMIT_VALUE_VERSION


def _encode_value(value: Message | None, version: int) -> bytes | None:
    return None if value is None else _INT16.pack(version) + value.to_bytes(version)


def _decode_value(schema: type[MessageT], value: bytes | None) -> MessageT | None:
    if value is None:
        return None
    if len(value) < 2:
        raise DecodeError("a coordinator record's value has at least two bytes")
    return schema.decode(value, 2, _INT16.unpack_from(value)[0])[0]
