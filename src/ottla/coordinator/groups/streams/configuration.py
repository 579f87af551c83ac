"""A topology compared with the topics of the cluster: its tasks, and its missing internal topics.

Not durable: a pure function of the topology and the metadata, computed again when the topology or the metadata changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.coordinator.groups.streams.partition_counts import PartitionCounts
from ottla.coordinator.groups.streams.statuses import StatusCode, TopologyProblem
from ottla.coordinator.groups.streams.topology import StreamsTopology
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import strings_in_java_order
from ottla.model.topic_names import is_topic_name
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig
from ottla.protocol.generated.streams_group_topology_value import Subtopology, TopicInfo

_SHOWN = 3
_DEFAULT_REPLICATION_FACTOR = -1


@dataclass(frozen=True, slots=True)
class InternalTopic:
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]

    def creatable(self) -> CreatableTopic:
        configs = [CreatableTopicConfig(key, self.configs[key]) for key in strings_in_java_order(self.configs)]
        factor = self.replication_factor or _DEFAULT_REPLICATION_FACTOR
        return CreatableTopic(self.name, self.partitions, factor, configs=configs)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    tasks: int
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    repartition_sink_topics: frozenset[str]
    state_changelog_topics: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def all_sources(self) -> frozenset[str]:
        return self.source_topics | self.repartition_source_topics.keys()


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    """In the order of their ids; empty when the sources do not allow any."""
    missing: tuple[InternalTopic, ...] = ()
    problem: TopologyProblem | None = None

    @property
    def is_ready(self) -> bool:
        """Tasks may be handed out."""
        return self.problem is None


def configure(topology: StreamsTopology, image: MetadataImage) -> ConfiguredTopology:
    """KafkaError for a topology that no topics can satisfy."""

    def existing(name: str) -> int | None:
        topic = image.topics_by_name.get(name)
        return None if topic is None else len(topic.partitions)

    try:
        _check_sources(topology, image)
        counts = PartitionCounts(topology, existing)
        subtopologies = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], counts)
            for subtopology_id in sorted(topology.subtopologies)
        }
        missing = _missing(topology, subtopologies, image)
    except TopologyProblem as error:
        return ConfiguredTopology(topology.epoch, problem=error)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summary([topic.name for topic in missing])}"
        problem = TopologyProblem(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _check_sources(topology: StreamsTopology, image: MetadataImage) -> None:
    sources = {name for subtopology in topology.subtopologies.values() for name in subtopology.source_topics}
    missing = sorted(sources - image.topics_by_name.keys())
    if missing:
        raise TopologyProblem(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


def _configured(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        counts.tasks(subtopology),
        frozenset(subtopology.source_topics),
        {topic.name: _internal(topic, counts) for topic in subtopology.repartition_source_topics},
        frozenset(subtopology.repartition_sink_topics),
        {topic.name: _internal(topic, counts) for topic in subtopology.state_changelog_topics},
    )


def _internal(topic: TopicInfo, counts: PartitionCounts) -> InternalTopic:
    partitions = topic.partitions or counts.decided[topic.name]
    if partitions < 1 or not is_topic_name(topic.name):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no topic {topic.name} with {partitions} partitions")
    configs = {config.key: config.value for config in topic.topic_configs}
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _missing(
    topology: StreamsTopology, subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> tuple[InternalTopic, ...]:
    internal_topics: dict[str, InternalTopic] = {}
    for subtopology in subtopologies.values():
        internal_topics.update(subtopology.repartition_source_topics)
        internal_topics.update(subtopology.state_changelog_topics)
    for name in strings_in_java_order(topology.required_topics):
        topic = image.topics_by_name.get(name)
        expected = internal_topics.pop(name, None) if topic is not None else None
        if topic is not None and expected is not None and len(topic.partitions) != expected.partitions:
            raise TopologyProblem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected.partitions}, found "
                f"{len(topic.partitions)}",
            )
    return tuple(internal_topics[name] for name in strings_in_java_order(internal_topics))


def _summary(topics: list[str]) -> str:
    hidden_count = len(topics) - _SHOWN
    return ", ".join(topics[:_SHOWN]) + (f" and {hidden_count} additional topics" if hidden_count > 0 else "")
