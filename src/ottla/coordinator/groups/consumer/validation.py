"""The checks of a ConsumerGroupHeartbeat that need no group."""

from __future__ import annotations

from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH, LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

_OWN_MEMBER_ID_FROM = 1


def validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, settings: GroupCoordinatorSettings
) -> None:
    epoch = request.member_epoch
    if version >= _OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_GROUP_EPOCH:
        _not_blank(request.member_id, "MemberId")
    _not_blank(request.group_id, "GroupId")
    _not_blank(request.instance_id, "InstanceId")
    _not_blank(request.rack_id, "RackId")
    if epoch == JOIN_GROUP_EPOCH:
        _validate_join(request)
    elif epoch == LEAVE_GROUP_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in settings.group_consumer_assignors:
        supported = ", ".join(settings.group_consumer_assignors)
        message = f"ServerAssignor {assignor} is not supported. Supported assignors: {supported}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
