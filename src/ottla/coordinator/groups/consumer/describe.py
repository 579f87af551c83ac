"""ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.decisions import GroupDecision, Waiter, answered
from ottla.coordinator.groups.consumer.group import NO_TARGET, ConsumerGroup
from ottla.coordinator.groups.consumer.members import ConsumerMember
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.java_order import strings_in_java_order
from ottla.protocol.generated.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


class ConsumerDescribe:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def describe(self, group_id: str, waiter: Waiter) -> GroupDecision:
        """Raises KafkaError when the group does not exist or is of a different kind."""
        group = self._context.group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        description = DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor() or self._context.settings.group_consumer_assignors[0],
            members=[
                _described(group, group.members[member_id], self._context.image)
                for member_id in _ordered(group.members)
            ],
        )
        return answered(waiter, description)


def _ordered(member_ids: Iterable[str]) -> list[str]:
    return strings_in_java_order(member_ids)


def _described(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> Member:
    current: dict[Uuid, set[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, epochs in partitions.items():
            current.setdefault(topic_id, set()).update(epochs)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=_ordered(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(current.items(), image),
        target_assignment=_assignment(group.targets.get(member.member_id, NO_TARGET).items(), image),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[tuple[Uuid, Iterable[int]]], image: MetadataImage) -> Assignment:
    """Topics that are gone are left out."""
    return Assignment(
        [
            TopicPartitions(topic_id, topic.name, sorted(indexes))
            for topic_id, indexes in partitions
            if (topic := image.topics_by_id.get(topic_id)) is not None
        ]
    )
