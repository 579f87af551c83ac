"""A consumer group as records, and back. Every record type of a consumer group is made here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.coordinator.groups.consumer.members import (
    AssignedPartitions,
    ClassicMember,
    ConsumerMember,
    ConsumerMemberState,
    TargetPartitions,
)
from ottla.coordinator.groups.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.records import CoordinatorRecord, GroupKindRecord
from ottla.model.ids import Uuid
from ottla.protocol.generated.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from ottla.protocol.generated.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from ottla.protocol.generated.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from ottla.protocol.generated.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from ottla.protocol.generated.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.protocol.generated.consumer_group_metadata_value import ConsumerGroupMetadataValue
from ottla.protocol.generated.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from ottla.protocol.generated.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from ottla.protocol.generated.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from ottla.protocol.generated.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from ottla.protocol.generated.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from ottla.protocol.generated.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.generated.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.primitives import DecodeError

# Records


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> GroupKindRecord:
    return GroupKindRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(group_epoch, metadata_hash))


def member_record(group_id: str, member: ConsumerMember) -> GroupKindRecord:
    classic = None
    if member.classic is not None:
        protocols = [ClassicProtocol(name, metadata) for name, metadata in member.classic.protocols]
        classic = ClassicMemberMetadata(member.classic.session_timeout_ms, protocols)
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return GroupKindRecord(ConsumerGroupMemberMetadataKey(group_id, member.member_id), value)


def target_record(group_id: str, member_id: str, target: TargetPartitions) -> GroupKindRecord:
    topics = [TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in target.items()]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupKindRecord(key, ConsumerGroupTargetAssignmentMemberValue(topics))


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> GroupKindRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch, timestamp_ms)
    return GroupKindRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def current_record(group_id: str, member: ConsumerMember) -> GroupKindRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member.member_epoch,
        member.previous_member_epoch,
        member.state,
        _topics(member.assigned),
        _topics(member.pending_revocation),
    )
    return GroupKindRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> GroupKindRecord:
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms)
    return GroupKindRecord(ConsumerGroupRegularExpressionKey(group_id, regex), value)


def partition_metadata_tombstone(group_id: str) -> GroupKindRecord:
    return GroupKindRecord(ConsumerGroupPartitionMetadataKey(group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        GroupKindRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupKindRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupKindRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: list[str], regexes: Iterable[str]) -> list[CoordinatorRecord]:
    """Tombstones for all possible records of a group, members first."""
    records: list[CoordinatorRecord] = []
    records += [
        GroupKindRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None) for member_id in member_ids
    ]
    records += [
        GroupKindRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None) for member_id in member_ids
    ]
    records.append(GroupKindRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), None))
    records += [GroupKindRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None) for member_id in member_ids]
    records += [regex_record(group_id, regex, None) for regex in regexes]
    records.append(partition_metadata_tombstone(group_id))
    records.append(GroupKindRecord(ConsumerGroupMetadataKey(group_id), None))
    return records


def _topics(partitions: AssignedPartitions) -> list[TopicPartitions]:
    answer = []
    for topic_id, epochs in partitions.items():
        ordered = sorted(epochs)
        answer.append(TopicPartitions(topic_id, ordered, [epochs[partition] for partition in ordered]))
    return answer


# And back


def with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = None
    metadata = value.classic_member_metadata
    if metadata is not None:
        if not metadata.supported_protocols:
            raise DecodeError(f"the classic member {member.member_id} supports no protocol")
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in metadata.supported_protocols)
        classic = ClassicMember(metadata.session_timeout_ms, protocols)
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def with_assignment(member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=ConsumerMemberState.read(value.state),
        assigned=_partitions(value.assigned_partitions, value.member_epoch),
        pending_revocation=_partitions(value.partitions_pending_revocation, value.member_epoch),
    )


def target_from(value: ConsumerGroupTargetAssignmentMemberValue) -> TargetPartitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _partitions(topics: list[TopicPartitions], member_epoch: int) -> AssignedPartitions:
    """Records of Kafka before 4.3 have no epochs: the member's own epoch is the latest possible."""
    answer: dict[Uuid, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        answer[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return answer
