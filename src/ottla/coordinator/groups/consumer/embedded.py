"""The embedded consumer protocol: the bytes of subscriptions and assignments of classic members.

A classic member in a consumer group sends its subscription and owned partitions in it, and receives its assignment in
it.
"""

from __future__ import annotations

from struct import Struct

from ottla.coordinator.groups.consumer.members import TargetPartitions
from ottla.coordinator.groups.consumer.reconciliation import OwnedPartitions
from ottla.metadata.image import MetadataImage
from ottla.protocol.generated.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.primitives import DecodeError

_VERSION = Struct(">h")


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises DecodeError for other bytes. A later version is read as the latest supported version."""
    version = min(read_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.decode(metadata, _VERSION.size, version)[0]


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    version = min(read_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    return ConsumerProtocolAssignment.decode(assignment, _VERSION.size, version)[0]


def read_version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise DecodeError("the embedded consumer protocol begins with its version")
    version = int(_VERSION.unpack_from(data)[0])
    if version < 0:
        raise DecodeError(f"the embedded consumer protocol has no version {version}")
    return version


def version_or_first(metadata: bytes) -> int:
    """The version of the assignment for a member with this metadata: only the metadata of the first protocol counts."""
    try:
        return read_version(metadata)
    except DecodeError:
        return 0


def write_assignment(partitions: TargetPartitions, version: int, image: MetadataImage) -> bytes:
    """In the version that the member itself uses; deleted topics are left out."""
    version = min(version, ConsumerProtocolAssignment.MAX_VERSION)
    topics = [
        TopicPartition(topic.name, sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
    ]
    return _VERSION.pack(version) + ConsumerProtocolAssignment(topics, None).to_bytes(version)


def owned_partitions(subscription: ConsumerProtocolSubscription, image: MetadataImage) -> OwnedPartitions:
    return {
        topic.id: frozenset(owned.partitions)
        for owned in subscription.owned_partitions
        if (topic := image.topics_by_name.get(owned.topic)) is not None
    }


def assigned_partitions(assignment: ConsumerProtocolAssignment, image: MetadataImage) -> TargetPartitions:
    return {
        topic.id: frozenset(assigned.partitions)
        for assigned in assignment.assigned_partitions
        if (topic := image.topics_by_name.get(assigned.topic)) is not None
    }
