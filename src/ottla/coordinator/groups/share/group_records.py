"""A share group as records, and back. Every record type of a share group is made here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.groups.share.members import Partitions, ShareMember
from ottla.coordinator.records import CoordinatorRecord, GroupKindRecord
from ottla.model.ids import Uuid
from ottla.protocol.generated import share_group_current_member_assignment_value as current_value
from ottla.protocol.generated import share_group_target_assignment_member_value as target_value
from ottla.protocol.generated.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from ottla.protocol.generated.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from ottla.protocol.generated.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from ottla.protocol.generated.share_group_metadata_key import ShareGroupMetadataKey
from ottla.protocol.generated.share_group_metadata_value import ShareGroupMetadataValue
from ottla.protocol.generated.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from ottla.protocol.generated.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from ottla.protocol.generated.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from ottla.protocol.generated.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from ottla.protocol.generated.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.share.group import SharedTopic

_STABLE = 0

# Records


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> GroupKindRecord:
    return GroupKindRecord(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(group_epoch, metadata_hash))


def member_record(group_id: str, member: ShareMember) -> GroupKindRecord:
    names = sorted(member.subscribed_topic_names)
    value = ShareGroupMemberMetadataValue(member.rack_id, member.client_id, member.client_host, names)
    return GroupKindRecord(ShareGroupMemberMetadataKey(group_id, member.member_id), value)


def target_record(group_id: str, member_id: str, target: Partitions) -> GroupKindRecord:
    topics = [target_value.TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in target.items()]
    value = target_value.ShareGroupTargetAssignmentMemberValue(topics)
    return GroupKindRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), value)


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> GroupKindRecord:
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch, timestamp_ms)
    return GroupKindRecord(ShareGroupTargetAssignmentMetadataKey(group_id), value)


def current_record(group_id: str, member: ShareMember) -> GroupKindRecord:
    topics = [
        current_value.TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in member.assigned.items()
    ]
    value = current_value.ShareGroupCurrentMemberAssignmentValue(
        member.member_epoch, member.previous_member_epoch, _STABLE, topics
    )
    return GroupKindRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def state_partitions_record(
    group_id: str,
    initializing: Mapping[Uuid, SharedTopic],
    initialized: Mapping[Uuid, SharedTopic],
    deleting: Mapping[Uuid, str],
) -> GroupKindRecord:
    value = ShareGroupStatePartitionMetadataValue(
        _topics(initializing),
        _topics(initialized),
        [TopicInfo(topic_id, name) for topic_id, name in deleting.items()],
    )
    return GroupKindRecord(ShareGroupStatePartitionMetadataKey(group_id), value)


def _topics(topics: Mapping[Uuid, SharedTopic]) -> list[TopicPartitionsInfo]:
    return [TopicPartitionsInfo(topic_id, topic.name, sorted(topic.partitions)) for topic_id, topic in topics.items()]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        GroupKindRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupKindRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupKindRecord(ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: list[str]) -> list[CoordinatorRecord]:
    """Tombstones for all possible records of a group, members first."""
    records: list[CoordinatorRecord] = []
    records += [
        GroupKindRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None) for member_id in member_ids
    ]
    records += [
        GroupKindRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None) for member_id in member_ids
    ]
    records.append(GroupKindRecord(ShareGroupTargetAssignmentMetadataKey(group_id), None))
    records += [GroupKindRecord(ShareGroupMemberMetadataKey(group_id, member_id), None) for member_id in member_ids]
    records.append(GroupKindRecord(ShareGroupStatePartitionMetadataKey(group_id), None))
    records.append(GroupKindRecord(ShareGroupMetadataKey(group_id), None))
    return records


# And back


def with_metadata(member: ShareMember, value: ShareGroupMemberMetadataValue) -> ShareMember:
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
    )


def with_assignment(member: ShareMember, value: current_value.ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
    )


def target_from(value: target_value.ShareGroupTargetAssignmentMemberValue) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
