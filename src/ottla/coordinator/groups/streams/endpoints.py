"""The partitions behind each endpoint: every member with an endpoint, and the sources of the member's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator.groups.streams.configuration import ConfiguredTopology
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.members import StreamsMember
from ottla.metadata.image import MetadataImage
from ottla.model.java_order import strings_in_java_order
from ottla.protocol.generated.streams_group_heartbeat_response import Endpoint, EndpointToPartitions, TopicPartition


def partitions_by_endpoint(
    group: StreamsGroup, updated: StreamsMember, configured: ConfiguredTopology, image: MetadataImage
) -> list[EndpointToPartitions]:
    other_members = [
        group.members[member_id] for member_id in strings_in_java_order(group.members) if member_id != updated.member_id
    ]
    return [
        EndpointToPartitions(
            Endpoint(*member.user_endpoint),
            _topic_partitions(member.assigned.active, configured, image),
            _topic_partitions(member.assigned.standby, configured, image),
        )
        for member in (*other_members, updated)
        if member.user_endpoint is not None
    ]


def _topic_partitions(
    tasks: Mapping[str, Iterable[int]], configured: ConfiguredTopology, image: MetadataImage
) -> list[TopicPartition]:
    topic_partitions = []
    for subtopology in strings_in_java_order(tasks):
        configured_subtopology = configured.subtopologies.get(subtopology)
        for name in (
            strings_in_java_order(configured_subtopology.all_sources) if configured_subtopology is not None else ()
        ):
            topic = image.topics_by_name.get(name)
            if topic is not None:
                partitions = sorted(tasks[subtopology])
                # A source with fewer partitions than the subtopology has tasks, as Kafka cuts it.
                topic_partitions.append(TopicPartition(name, partitions[: len(topic.partitions)]))
    return topic_partitions
