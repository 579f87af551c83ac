"""A classic group as its record, and back. Only this module decides which fields of a group are durable."""

from __future__ import annotations

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.members import Member
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.records import GroupMetadataRecord
from ottla.protocol.generated.group_metadata_value import GroupMetadataValue, MemberMetadata


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> GroupMetadataRecord:
    """The group as it is now, each member with the given assignment."""
    members = [
        MemberMetadata(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(group.protocol_name),
            assignments[member.member_id],
        )
        for member in group.members.values()
    ]
    timestamp_ms = -1 if group.state_timestamp_ms is None else group.state_timestamp_ms
    value = GroupMetadataValue(
        group.protocol_type or "", group.generation_id, group.protocol_name, group.leader_id, timestamp_ms, members
    )
    return GroupMetadataRecord(group.group_id, value)


def new_group_record(group_id: str, now_ms: int) -> GroupMetadataRecord:
    """The record of a new group without members."""
    return GroupMetadataRecord(group_id, GroupMetadataValue("", 0, None, None, now_ms, []))


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    timestamp_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
    group = ClassicGroup(group_id, state, timestamp_ms)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    # Every generation with members has a protocol. A record without a protocol means the only protocol of its members
    # (`_member`).
    group.protocol_name = (value.protocol or "") if value.members else value.protocol
    group.leader_id = value.leader
    for metadata in value.members:
        group.add(_member(metadata, value))
    group.refresh_subscribed_topics()
    return group


def describes(group: ClassicGroup, value: GroupMetadataValue) -> bool:
    """Whether `value` is the record of this group as it is in memory, without comparing assignments."""
    return (
        group.generation_id == value.generation
        and group.leader_id == value.leader
        and group.members.keys() == {member.member_id for member in value.members}
    )


def _member(metadata: MemberMetadata, value: GroupMetadataValue) -> Member:
    # Version 0 of the record has no rebalance timeout: the session timeout is used.
    rebalance_timeout_ms = metadata.rebalance_timeout
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = metadata.session_timeout
    return Member(
        metadata.member_id,
        metadata.group_instance_id,
        metadata.client_id,
        metadata.client_host,
        rebalance_timeout_ms,
        metadata.session_timeout,
        value.protocol_type,
        ((value.protocol or "", bytes(metadata.subscription)),),
        bytes(metadata.assignment),
    )
