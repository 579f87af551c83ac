"""How many partitions the internal topics of a topology need.

A repartition topic has the count of its topology. Without such a count, the topic has as many partitions as the largest
source of the subtopology that writes to the topic. Joined topics (a copartition group) have the same count. A changelog
has a partition for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from ottla.coordinator.groups.streams.statuses import StatusCode, TopologyProblem
from ottla.coordinator.groups.streams.topology import StreamsTopology, names
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.streams_group_topology_value import CopartitionGroup, Subtopology

Existing: TypeAlias = Callable[[str], int | None]
"""How many partitions a topic has; None when there is no such topic."""


class PartitionCounts:
    """The partition counts of the internal topics; an existing topic keeps its count."""

    def __init__(self, topology: StreamsTopology, existing: Existing) -> None:
        self._subtopologies: Collection[Subtopology] = topology.subtopologies.values()
        self._existing = existing
        self.decided: dict[str, int] = {}
        self.decided.update(self._repartition_topics())
        self._enforce_copartitioning()
        self.decided.update(self._changelogs())

    def of(self, topic: str) -> int | None:
        count = self._existing(topic)
        return self.decided.get(topic) if count is None else count

    def tasks(self, subtopology: Subtopology) -> int:
        """One for each partition of the largest source."""
        sources = (*subtopology.source_topics, *names(subtopology.repartition_source_topics))
        if not sources:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Subtopology does not contain any source topics")
        return max(map(self._required, sources))

    def _required(self, topic: str) -> int:
        count = self.of(topic)
        if count is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Number of partitions must be set for topic {topic}")
        return count

    # Repartition topics

    def _repartition_topics(self) -> Mapping[str, int]:
        counts = {
            topic.name: topic.partitions
            for subtopology in self._subtopologies
            for topic in subtopology.repartition_source_topics
            if topic.partitions
        }
        while self._missing_sinks(counts):
            if not self._follow_sources(counts):
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved."
                )
        if any(
            name not in counts
            for subtopology in self._subtopologies
            for name in names(subtopology.repartition_source_topics)
        ):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )
        return counts

    def _missing_sinks(self, counts: Mapping[str, int]) -> bool:
        return any(
            sink not in counts for subtopology in self._subtopologies for sink in subtopology.repartition_sink_topics
        )

    def _follow_sources(self, counts: dict[str, int]) -> bool:
        """Give sinks the count of their subtopology's largest source; False when no sink got a count."""
        progress = False
        for subtopology in self._subtopologies:
            for sink in subtopology.repartition_sink_topics:
                count = None if sink in counts else self._largest_source(subtopology, counts)
                if count is not None:
                    counts[sink] = count
                    progress = True
        return progress

    def _largest_source(self, subtopology: Subtopology, counts: Mapping[str, int]) -> int | None:
        source_counts = [counts.get(name) for name in names(subtopology.repartition_source_topics)]
        source_counts += [self.of(name) for name in subtopology.source_topics]
        return max((count for count in source_counts if count is not None), default=None)

    # Copartition groups

    def _enforce_copartitioning(self) -> None:
        sources = [topic for subtopology in self._subtopologies for topic in subtopology.repartition_source_topics]
        fixed = {topic.name for topic in sources if topic.partitions}
        flexible = {topic.name for topic in sources if not topic.partitions}
        for subtopology in self._subtopologies:
            for group in subtopology.copartition_groups:
                topics = _copartitioned(subtopology, group)
                if topics:
                    self._enforce(topics, fixed, flexible)

    def _enforce(self, topics: set[str], fixed: set[str], flexible: set[str]) -> None:
        internal = {name: self._required(name) for name in topics if name in fixed or name in flexible}
        external = {name: self._required(name) for name in topics if name not in internal}
        if external:
            count = _same(external, external)
        elif fixed:
            count = _same({name: self._required(name) for name in fixed}, internal)
        else:
            count = max(internal.values())
        for name, own in internal.items():
            if name in fixed and own != count:
                raise _mispartitioned(
                    f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                    f"[{count}] of the source topic."
                )
        self.decided.update(dict.fromkeys(internal, count))

    # Changelogs

    def _changelogs(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for subtopology in self._subtopologies:
            if not subtopology.source_topics and not subtopology.repartition_source_topics:
                raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
            counts.update(dict.fromkeys(names(subtopology.state_changelog_topics), self.tasks(subtopology)))
        return counts


def _copartitioned(subtopology: Subtopology, group: CopartitionGroup) -> set[str]:
    """The group names its topics by their places in the subtopology's lists."""
    sources = _picked(subtopology.source_topics, group.source_topics)
    return sources | _picked(names(subtopology.repartition_source_topics), group.repartition_source_topics)


def _picked(topics: list[str], places: list[int]) -> set[str]:
    if any(not 0 <= place < len(topics) for place in places):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a copartition group names a topic that is not there")
    return {topics[place] for place in places}


def _same(counts: Mapping[str, int], shown: Mapping[str, int]) -> int:
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))
        raise _mispartitioned(f"Following topics do not have the same number of partitions: [{{{text}}}]")
    return next(iter(counts.values()))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _mispartitioned(message: str) -> TopologyProblem:
    return TopologyProblem(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, message)
