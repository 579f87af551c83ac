"""Topics and partitions: what there is, who leads it, and changes to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.metadata_response import MetadataResponseTopic

_CHUNK = 2000
"""Partitions that one DescribeTopicPartitions answer may carry: Kafka's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    topic_id: Uuid
    internal: bool
    partitions: tuple[PartitionInfo, ...]


NAMELESS = "The given topic name '' cannot be represented in a request."


def check_named(*names: str) -> None:
    """Kafka's client does not send an empty name."""
    if "" in names:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, NAMELESS)


def list_topics(cluster: Cluster, call: str = "listTopics") -> list[MetadataResponseTopic]:
    """All topics that may be seen, internal ones too, by name."""
    metadata = cluster.describe(call, None)
    return sorted((topic for topic in metadata.topics if not topic.error_code), key=lambda topic: topic.name or "")


def describe_topics(cluster: Cluster, names: Iterable[str], limit: int = _CHUNK) -> list[TopicInfo]:
    """With eligible leader replicas if the broker reports them. Raises KafkaError for the first refused topic."""
    from ottla.protocol.generated.describe_topic_partitions_request import (
        Cursor,
        DescribeTopicPartitionsRequest,
        TopicRequest,
    )
    from ottla.protocol.generated.describe_topic_partitions_response import DescribeTopicPartitionsResponse

    topic_names = sorted(set(names))
    if not topic_names:
        return []
    connection = cluster.retried("describeTopics", cluster.any)
    if connection.usable_version(DescribeTopicPartitionsRequest.API_KEY) is None:
        return [_from_metadata(topic) for topic in cluster.describe("describeTopics", topic_names).topics]
    partitions: dict[str, list[PartitionInfo]] = {}
    described: dict[str, TopicInfo] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in topic_names], limit, cursor)
        answer = cluster.any_call("describeTopicPartitions", request, DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            check(topic.error_code)
            name = topic.name or ""
            rows = partitions.setdefault(name, [])
            rows += [
                PartitionInfo(
                    partition=row.partition_index,
                    leader=row.leader_id if row.leader_id >= 0 else None,
                    replicas=tuple(row.replica_nodes),
                    isr=tuple(row.isr_nodes),
                    elr=None if row.eligible_leader_replicas is None else tuple(row.eligible_leader_replicas),
                    last_known_elr=None if row.last_known_elr is None else tuple(row.last_known_elr),
                    offline=tuple(row.offline_replicas),
                )
                for row in topic.partitions
            ]
            described[name] = TopicInfo(name=name, topic_id=topic.topic_id, internal=topic.is_internal, partitions=())
        if answer.next_cursor is None:
            break
        cursor = Cursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    return [
        TopicInfo(name=name, topic_id=topic.topic_id, internal=topic.internal, partitions=tuple(partitions[name]))
        for name, topic in sorted(described.items())
    ]


def _from_metadata(topic: MetadataResponseTopic) -> TopicInfo:
    check(topic.error_code)
    rows = tuple(
        PartitionInfo(
            partition=row.partition_index,
            leader=row.leader_id if row.leader_id >= 0 else None,
            replicas=tuple(row.replica_nodes),
            isr=tuple(row.isr_nodes),
            offline=tuple(row.offline_replicas),
        )
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    )
    return TopicInfo(name=topic.name or "", topic_id=topic.topic_id, internal=topic.is_internal, partitions=rows)


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    from ottla.protocol.generated.create_topics_request import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )
    from ottla.protocol.generated.create_topics_response import CreateTopicsResponse

    check_named(name)
    topic = CreatableTopic(
        name,
        -1 if assignment else partitions,
        -1 if assignment else replication_factor,
        [CreatableReplicaAssignment(index, list(brokers)) for index, brokers in (assignment or {}).items()],
        [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest([topic], cluster.settings.request_timeout_ms)
    answer = cluster.controller_call("createTopics", request, CreateTopicsResponse, lambda a: a.topics[0].error_code)
    check(answer.topics[0].error_code, answer.topics[0].error_message)


def delete_topic(cluster: Cluster, name: str) -> None:
    from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
    from ottla.protocol.generated.delete_topics_response import DeleteTopicsResponse

    request = DeleteTopicsRequest([DeleteTopicState(name)], [name], cluster.settings.request_timeout_ms)
    answer = cluster.controller_call("deleteTopics", request, DeleteTopicsResponse, lambda a: a.responses[0].error_code)
    check(answer.responses[0].error_code, answer.responses[0].error_message)


def create_partitions(cluster: Cluster, name: str, count: int, assignment: Sequence[Sequence[int]] | None) -> None:
    from ottla.protocol.generated.create_partitions_request import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )
    from ottla.protocol.generated.create_partitions_response import CreatePartitionsResponse

    rows = None if assignment is None else [CreatePartitionsAssignment(list(brokers)) for brokers in assignment]
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, rows)], cluster.settings.request_timeout_ms)
    answer = cluster.controller_call(
        "createPartitions", request, CreatePartitionsResponse, lambda a: a.results[0].error_code
    )
    check(answer.results[0].error_code, answer.results[0].error_message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def list_reassignments(
    cluster: Cluster, partitions: Mapping[str, Sequence[int]] | None = None
) -> dict[tuple[str, int], Reassignment]:
    """Reassignments that are under way, of these partitions or of all; empty if the broker does not allow the call."""
    from ottla.protocol.generated.list_partition_reassignments_request import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )
    from ottla.protocol.generated.list_partition_reassignments_response import ListPartitionReassignmentsResponse

    topics = None
    if partitions is not None:
        topics = [ListPartitionReassignmentsTopics(name, list(rows)) for name, rows in partitions.items()]
    request = ListPartitionReassignmentsRequest(cluster.settings.request_timeout_ms, topics)
    answer = cluster.controller_call(
        "listPartitionReassignments", request, ListPartitionReassignmentsResponse, lambda a: a.error_code
    )
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, row.partition_index): Reassignment(
            replicas=tuple(row.replicas), adding=tuple(row.adding_replicas), removing=tuple(row.removing_replicas)
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def present_leaders(cluster: Cluster, names: Iterable[str]) -> dict[tuple[str, int], int]:
    """Without the partitions that have no leader now; KafkaError for a topic that is not there."""
    leaders: dict[tuple[str, int], int] = {}
    for topic in cluster.describe("metadata", names).topics:
        if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            check(topic.error_code)
        leaders.update({(topic.name or "", row.partition_index): row.leader_id for row in topic.partitions})
    return {where: leader for where, leader in leaders.items() if leader >= 0}


def leaders_of(cluster: Cluster, names: Iterable[str]) -> dict[tuple[str, int], int]:
    """The leader of each partition of these topics; KafkaError for a topic that is not there or has none."""
    leaders: dict[tuple[str, int], int] = {}
    for topic in cluster.describe("metadata", names).topics:
        check(topic.error_code)
        for row in topic.partitions:
            if row.leader_id < 0:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            leaders[topic.name or "", row.partition_index] = row.leader_id
    return leaders
