"""The checks of a StreamsGroupHeartbeat that need no group, in Kafka's order."""

from __future__ import annotations

from collections.abc import Sized

from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Topology


def validate_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    _refuse_unsupported(request)
    _not_blank(request.member_id, "MemberId")
    _not_blank(request.group_id, "GroupId")
    _not_blank(request.instance_id, "InstanceId")
    _not_blank(request.rack_id, "RackId")
    epoch = request.member_epoch
    if epoch == JOIN_GROUP_EPOCH:
        _validate_join(request)
    elif epoch == LEAVE_GROUP_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(task_ids is not None for task_ids in tasks) and any(task_ids is None for task_ids in tasks):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOIN_GROUP_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _refuse_unsupported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse fields of the schema that Kafka 4.3 does not serve yet."""
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None and any(
        subtopology.source_topic_regex for subtopology in request.topology.subtopologies
    ):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _validate_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    _empty(request.active_tasks, "ActiveTasks")
    _empty(request.standby_tasks, "StandbyTasks")
    _empty(request.warmup_tasks, "WarmupTasks")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    _validate_changelogs(request.topology)


def _validate_changelogs(topology: Topology) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


def _empty(tasks: Sized | None, name: str) -> None:
    if tasks is None or len(tasks):
        raise _invalid(f"{name} must be empty when (re-)joining.")


def _not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
