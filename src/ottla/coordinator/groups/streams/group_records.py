"""A streams group as records, and back. Every record type of a streams group is made here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ottla.coordinator.groups.streams.members import StreamsMember, StreamsMemberState, UserEndpoint
from ottla.coordinator.groups.streams.tasks import ActiveTasks, AssignedTasks, TargetTasks, Tasks, tasks_from
from ottla.coordinator.records import CoordinatorRecord, GroupKindRecord
from ottla.env.logging import get_logger
from ottla.protocol.generated import streams_group_current_member_assignment_value as current
from ottla.protocol.generated import streams_group_member_metadata_value as metadata
from ottla.protocol.generated import streams_group_target_assignment_member_value as target
from ottla.protocol.generated.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from ottla.protocol.generated.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from ottla.protocol.generated.streams_group_metadata_key import StreamsGroupMetadataKey
from ottla.protocol.generated.streams_group_metadata_value import LastAssignmentConfig, StreamsGroupMetadataValue
from ottla.protocol.generated.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from ottla.protocol.generated.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.generated.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.generated.streams_group_topology_key import StreamsGroupTopologyKey
from ottla.protocol.generated.streams_group_topology_value import StreamsGroupTopologyValue

log = get_logger(__name__)

# Records


def group_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> GroupKindRecord:
    assignment_configs = [LastAssignmentConfig(key, configs[key]) for key in sorted(configs)]
    value = StreamsGroupMetadataValue(epoch, metadata_hash, validated_topology_epoch, assignment_configs)
    return GroupKindRecord(StreamsGroupMetadataKey(group_id), value)


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> GroupKindRecord:
    return GroupKindRecord(StreamsGroupTopologyKey(group_id), value)


def member_record(group_id: str, member: StreamsMember) -> GroupKindRecord:
    endpoint = None if member.user_endpoint is None else metadata.Endpoint(*member.user_endpoint)
    value = metadata.StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[metadata.KeyValue(key, member.client_tags[key]) for key in sorted(member.client_tags)],
    )
    return GroupKindRecord(StreamsGroupMemberMetadataKey(group_id, member.member_id), value)


def target_record(group_id: str, member_id: str, tasks: TargetTasks) -> GroupKindRecord:
    value = target.StreamsGroupTargetAssignmentMemberValue(
        *(
            [target.TaskIds(subtopology_id, sorted(kind[subtopology_id])) for subtopology_id in sorted(kind)]
            for kind in tasks
        )
    )
    return GroupKindRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), value)


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> GroupKindRecord:
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch, timestamp_ms)
    return GroupKindRecord(StreamsGroupTargetAssignmentMetadataKey(group_id), value)


def current_record(group_id: str, member: StreamsMember) -> GroupKindRecord:
    assigned, revoked = member.assigned, member.pending_revocation
    value = current.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        active_tasks=_active(assigned.active),
        standby_tasks=_copies(assigned.standby),
        warmup_tasks=_copies(assigned.warmup),
        active_tasks_pending_revocation=_active(revoked.active),
        standby_tasks_pending_revocation=_copies(revoked.standby),
        warmup_tasks_pending_revocation=_copies(revoked.warmup),
    )
    return GroupKindRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        GroupKindRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupKindRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupKindRecord(StreamsGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: list[str]) -> list[CoordinatorRecord]:
    """Tombstones for all possible records of a group, members first."""
    currents = [
        GroupKindRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None) for member_id in member_ids
    ]
    targets = [
        GroupKindRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None) for member_id in member_ids
    ]
    members = [GroupKindRecord(StreamsGroupMemberMetadataKey(group_id, member_id), None) for member_id in member_ids]
    return [
        *currents,
        *targets,
        GroupKindRecord(StreamsGroupTargetAssignmentMetadataKey(group_id), None),
        *members,
        GroupKindRecord(StreamsGroupMetadataKey(group_id), None),
        GroupKindRecord(StreamsGroupTopologyKey(group_id), None),
    ]


def _active(tasks: ActiveTasks) -> list[current.TaskIds]:
    listed = []
    for subtopology in sorted(tasks):
        partitions = sorted(tasks[subtopology])
        epochs = [tasks[subtopology][partition] for partition in partitions]
        listed.append(current.TaskIds(subtopology, partitions, epochs))
    return listed


def _copies(tasks: Tasks) -> list[current.TaskIds]:
    return [current.TaskIds(subtopology, sorted(tasks[subtopology])) for subtopology in sorted(tasks)]


# And back


def with_metadata(member: StreamsMember, value: metadata.StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in value.client_tags},
    )


def with_assignment(member: StreamsMember, value: current.StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
    epoch = value.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=StreamsMemberState.read(value.state),
        assigned=_assigned(value.active_tasks, value.standby_tasks, value.warmup_tasks, epoch),
        pending_revocation=_assigned(
            value.active_tasks_pending_revocation,
            value.standby_tasks_pending_revocation,
            value.warmup_tasks_pending_revocation,
            epoch,
        ),
    )


def target_from(value: Any) -> TargetTasks:
    return TargetTasks(*map(tasks_from, (value.active_tasks, value.standby_tasks, value.warmup_tasks)))


def _assigned(
    active: list[current.TaskIds], standby: Iterable[Any], warmup: Iterable[Any], member_epoch: int
) -> AssignedTasks:
    with_epochs = {tasks.subtopology_id: _with_epochs(tasks, member_epoch) for tasks in active}
    return AssignedTasks(with_epochs, tasks_from(standby), tasks_from(warmup))


def _with_epochs(tasks: current.TaskIds, member_epoch: int) -> dict[int, int]:
    """Kafka before 4.3 wrote no epochs: the member's own counts then."""
    epochs = tasks.assignment_epochs
    if epochs is None or len(epochs) != len(tasks.partitions):
        if epochs:
            log.error("tasks.epochs_rejected", subtopology=tasks.subtopology_id, epochs=len(epochs))
        return dict.fromkeys(tasks.partitions, member_epoch)
    return dict(zip(tasks.partitions, epochs, strict=True))
