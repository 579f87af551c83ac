"""StreamsGroupDescribe: the group, its topology as it is configured, and what each member has and should have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator.decisions import GroupDecision, Waiter, answered
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.streams.configuration import ConfiguredTopology, InternalTopic
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.members import StreamsMember
from ottla.coordinator.groups.streams.tasks import NO_TARGET
from ottla.coordinator.groups.streams.topology import StreamsTopology
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import strings_in_java_order
from ottla.protocol.generated.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from ottla.protocol.generated.streams_group_topology_value import TopicInfo as StoredTopic


class StreamsDescribe:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def describe(self, group_id: str, waiter: Waiter) -> GroupDecision:
        """Raises KafkaError when the group does not exist or is of a different kind."""
        group = self._context.group(group_id)
        if not isinstance(group, StreamsGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        description = DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            topology=_topology(group),
            members=[_member(group, group.members[member_id]) for member_id in strings_in_java_order(group.members)],
        )
        return answered(waiter, description)


def _topology(group: StreamsGroup) -> Topology | None:
    """With the partitions of the internal topics once these exist; before that as the first member sent it."""
    if group.configured is not None and group.configured.is_ready:
        return _configured(group.configured)
    return None if group.topology is None else _stored(group.topology)


def _configured(topology: ConfiguredTopology) -> Topology:
    return Topology(
        topology.epoch,
        [
            Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(subtopology.source_topics),
                repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
                state_changelog_topics=_internal(subtopology.state_changelog_topics),
                repartition_source_topics=_internal(subtopology.repartition_source_topics),
            )
            for subtopology_id, subtopology in topology.subtopologies.items()
        ],
    )


def _internal(topics: Mapping[str, InternalTopic]) -> list[TopicInfo]:
    described = []
    for name in sorted(topics):
        topic = topics[name]
        configs = [KeyValue(key, topic.configs[key]) for key in strings_in_java_order(topic.configs)]
        described.append(TopicInfo(name, topic.partitions, topic.replication_factor, configs))
    return described


def _stored(topology: StreamsTopology) -> Topology:
    return Topology(
        topology.epoch,
        [
            Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(topology.subtopologies[subtopology_id].source_topics),
                repartition_sink_topics=sorted(topology.subtopologies[subtopology_id].repartition_sink_topics),
                state_changelog_topics=_listed(topology.subtopologies[subtopology_id].state_changelog_topics),
                repartition_source_topics=_listed(topology.subtopologies[subtopology_id].repartition_source_topics),
            )
            for subtopology_id in sorted(topology.subtopologies)
        ],
    )


def _listed(topics: list[StoredTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [KeyValue(config.key, config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=[KeyValue(key, member.client_tags[key]) for key in strings_in_java_order(member.client_tags)],
        assignment=_assignment(*member.assigned),
        target_assignment=_assignment(*group.targets.get(member.member_id, NO_TARGET)),
    )


def _assignment(
    active: Mapping[str, Iterable[int]], standby: Mapping[str, Iterable[int]], warmup: Mapping[str, Iterable[int]]
) -> Assignment:
    return Assignment(
        *(
            [TaskIds(subtopology_id, sorted(tasks[subtopology_id])) for subtopology_id in sorted(tasks)]
            for tasks in (active, standby, warmup)
        )
    )
