"""The topology that the first member brought: subtopologies, their sources, sinks and internal topics.

Kept as the record has it. Kafka 4.3 has no updates of a topology: a later epoch, or another one under the same epoch,
is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ottla.protocol.generated.streams_group_heartbeat_request import TopicInfo as RequestTopicInfo
from ottla.protocol.generated.streams_group_heartbeat_request import Topology
from ottla.protocol.generated.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)


class StreamsTopology:
    def __init__(self, record: StreamsGroupTopologyValue) -> None:
        self.record = record
        self.epoch = record.epoch
        self.subtopologies: Mapping[str, Subtopology] = {
            subtopology.subtopology_id: subtopology for subtopology in record.subtopologies
        }

    def __eq__(self, other: object) -> bool:
        """The order of the subtopologies does not count."""
        if not isinstance(other, StreamsTopology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]  # holds messages, which have none

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """All that must be there before tasks are handed out, and whose changes concern the group."""
        return frozenset(
            name
            for subtopology in self.subtopologies.values()
            for name in (
                *subtopology.source_topics,
                *names(subtopology.repartition_source_topics),
                *names(subtopology.state_changelog_topics),
            )
        )

    @cached_property
    def subtopology_of_source(self) -> Mapping[str, str]:
        return {
            name: subtopology.subtopology_id
            for subtopology in self.subtopologies.values()
            for name in (*subtopology.source_topics, *names(subtopology.repartition_source_topics))
        }


def names(topics: list[TopicInfo]) -> list[str]:
    return [topic.name for topic in topics]


def topology_value(topology: Topology) -> StreamsGroupTopologyValue:
    """The topology of a heartbeat in the form of its record."""
    return StreamsGroupTopologyValue(
        topology.epoch,
        [
            Subtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=subtopology.source_topics,
                source_topic_regex=subtopology.source_topic_regex,
                state_changelog_topics=_infos(subtopology.state_changelog_topics),
                repartition_sink_topics=subtopology.repartition_sink_topics,
                repartition_source_topics=_infos(subtopology.repartition_source_topics),
                copartition_groups=[
                    CopartitionGroup(group.source_topics, group.source_topic_regex, group.repartition_source_topics)
                    for group in subtopology.copartition_groups
                ],
            )
            for subtopology in topology.subtopologies
        ],
    )


def _infos(topics: list[RequestTopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [TopicConfig(config.key, config.value) for config in topic.topic_configs],
        )
        for topic in topics
    ]
