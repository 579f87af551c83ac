"""ShareGroupDescribe."""

from __future__ import annotations

from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.share.group import ShareGroup
from ottla.coordinator.groups.share.members import ShareMember
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import strings_in_java_order
from ottla.protocol.generated.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

ASSIGNOR = "simple"


def share_group(context: ShardContext, group_id: str) -> ShareGroup:
    """Raises KafkaError when the group does not exist or is of a different kind."""
    group = context.group(group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return group


def describe(context: ShardContext, group_id: str) -> DescribedGroup:
    group = share_group(context, group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[
            _described(group.members[member_id], context.image) for member_id in strings_in_java_order(group.members)
        ],
    )


def _described(member: ShareMember, image: MetadataImage) -> Member:
    """Topics that are gone are left out."""
    assigned = [
        TopicPartitions(topic_id, topic.name, sorted(partitions))
        for topic_id, partitions in member.assigned.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
    ]
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=strings_in_java_order(member.subscribed_topic_names),
        assignment=Assignment(assigned),
    )
