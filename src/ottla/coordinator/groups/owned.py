"""The partitions that the members of a consumer group own, by the consumer protocol or the classic protocol."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.group import Group
from ottla.metadata.image import MetadataImage
from ottla.protocol.generated.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.protocol.primitives import DecodeError

_VERSION_BYTES = 2


def owned_partitions(group: Group, image: MetadataImage) -> Iterator[tuple[str, int]]:
    """Topic and partition; nothing for groups of other kinds and for assignments of other protocols."""
    if isinstance(group, ConsumerGroup):
        for member in group.members.values():
            for topic_id, partitions in member.assigned.items():
                if (topic := image.topics_by_id.get(topic_id)) is not None:
                    yield from ((topic.name, partition) for partition in partitions)
    elif isinstance(group, ClassicGroup) and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for classic_member in group.members.values():
            yield from _of_assignment(classic_member.assignment)


def _of_assignment(assignment: bytes) -> Iterator[tuple[str, int]]:
    """Version 0 is a prefix of all later versions."""
    if len(assignment) < _VERSION_BYTES:
        return
    try:
        decoded, _ = ConsumerProtocolAssignment.decode(assignment, _VERSION_BYTES, 0)
    except DecodeError:
        return
    for topic in decoded.assigned_partitions:
        yield from ((topic.topic, partition) for partition in topic.partitions)
