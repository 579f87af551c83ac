"""The partitions that the members of a consumer group own, by the consumer protocol or the classic protocol."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.group import Group
from ottla.metadata.image import MetadataImage
from ottla.protocol.classic_assignment import partitions_of_assignment


def owned_partitions(group: Group, image: MetadataImage) -> Iterator[tuple[str, int]]:
    """Topic and partition; nothing for groups of other kinds and for assignments of other protocols."""
    if isinstance(group, ConsumerGroup):
        for member in group.members.values():
            for topic_id, partitions in member.assigned.items():
                if (topic := image.topics_by_id.get(topic_id)) is not None:
                    yield from ((topic.name, partition) for partition in partitions)
    elif isinstance(group, ClassicGroup) and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for classic_member in group.members.values():
            yield from partitions_of_assignment(classic_member.assignment)
