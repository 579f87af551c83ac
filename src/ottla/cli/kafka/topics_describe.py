"""`kafka-topics --describe`: topics, their settings, their partitions, and the reports on partitions in trouble."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.cli.kafka.options import Options
from ottla.client.cluster import Cluster
from ottla.client.configs import ConfigResourceType, describe_configs
from ottla.client.errors import ClientError
from ottla.client.groups import hash_order
from ottla.client.topics import (
    PartitionInfo,
    Reassignment,
    TopicInfo,
    describe_topics,
    list_reassignments,
    list_topics,
)
from ottla.model.config_source import ConfigSource
from ottla.model.errors import KafkaError
from ottla.model.ids import ZERO_UUID, uuid_from_str, uuid_to_str
from ottla.protocol.generated.describe_configs_response import DescribeConfigsResourceResult

_LIMIT = 2000


def describe(cluster: Cluster, options: Options, names: Sequence[str]) -> None:
    topic_names = _by_id(cluster, options) if options.has("topic-id") else list(names)
    if not topic_names and options.value("topic") and not options.has("topic-id") and not options.has("if-exists"):
        raise ValueError(f"Topic '{options.value('topic')}' does not exist as expected")
    if not topic_names:
        return
    topics = describe_topics(cluster, topic_names, options.integer("partition-size-limit-per-response") or _LIMIT)
    live = {broker.node_id for broker in cluster.describe("describeCluster").brokers}
    configs = describe_configs(cluster, ConfigResourceType.TOPIC, [topic.name for topic in topics])
    moves = _reassignments(cluster, topics)
    reports = [name for name in _REPORTS if options.has(name)]
    for topic in topics:
        by_name = {row.name: row for row in configs.get(topic.name, [])}
        settings = [by_name[name] for name in hash_order(by_name)]
        overridden = [row for row in settings if row.config_source != ConfigSource.DEFAULT_CONFIG]
        if not reports and (not options.has("topics-with-overrides") or overridden):
            _print_topic(topic, overridden, moves)
        if options.has("topics-with-overrides"):
            continue
        minimum = next((int(row.value or 1) for row in settings if row.name == "min.insync.replicas"), 1)
        for row in topic.partitions:
            move = moves.get((topic.name, row.partition))
            if not reports or any(_REPORTS[name](row, move, minimum, live) for name in reports):
                _print_partition(topic.name, row, move)


def _by_id(cluster: Cluster, options: Options) -> list[str]:
    text = options.required("topic-id")
    try:
        topic_id = uuid_from_str(text)
    except ValueError:
        size = len(text.rstrip("=")) * 6 // 8
        if size != 16:
            raise ValueError(
                f"Input string `{text}` decoded as {size} bytes, "
                "which is not equal to the expected 16 bytes of a base64-encoded UUID"
            ) from None
        raise
    topic_names = [topic.name or "" for topic in list_topics(cluster) if topic.topic_id == topic_id]
    if not topic_names and not options.has("if-exists"):
        raise ValueError(f"TopicId '{text}' does not exist as expected")
    return topic_names


def _reassignments(cluster: Cluster, topics: Sequence[TopicInfo]) -> dict[tuple[str, int], Reassignment]:
    """Empty if the broker does not support or does not allow the call, as in Kafka's tool."""
    partitions_by_topic = {topic.name: [row.partition for row in topic.partitions] for topic in topics}
    try:
        return list_reassignments(cluster, partitions_by_topic)
    except (KafkaError, ClientError):
        return {}


def _replication_factor(row: PartitionInfo, move: Reassignment | None) -> int:
    if move is not None and {*move.adding, *move.removing} & set(row.replicas):
        return len(move.replicas) - len(move.adding)
    return len(row.replicas)


def _under_replicated(row: PartitionInfo, move: Reassignment | None, minimum: int, live: set[int]) -> bool:
    del minimum, live
    return len(row.isr) < _replication_factor(row, move)


def _unavailable(row: PartitionInfo, move: Reassignment | None, minimum: int, live: set[int]) -> bool:
    del move, minimum
    return row.leader is None or row.leader not in live


def _under_min_isr(row: PartitionInfo, move: Reassignment | None, minimum: int, live: set[int]) -> bool:
    del move, live
    return row.leader is None or len(row.isr) < minimum


def _at_min_isr(row: PartitionInfo, move: Reassignment | None, minimum: int, live: set[int]) -> bool:
    del move, live
    return len(row.isr) == minimum


_REPORTS = {
    "under-replicated-partitions": _under_replicated,
    "unavailable-partitions": _unavailable,
    "under-min-isr-partitions": _under_min_isr,
    "at-min-isr-partitions": _at_min_isr,
}


def _print_topic(
    topic: TopicInfo,
    overridden: Iterable[DescribeConfigsResourceResult],
    moves: dict[tuple[str, int], Reassignment],
) -> None:
    first = topic.partitions[0]
    cells = [f"Topic: {topic.name}"]
    if topic.topic_id != ZERO_UUID:
        cells.append(f"TopicId: {uuid_to_str(topic.topic_id)}")
    cells += [
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {_replication_factor(first, moves.get((topic.name, first.partition)))}",
        "Configs: " + ",".join(f"{row.name}={row.value}" for row in overridden),
    ]
    print("\t".join(cells))


def _print_partition(topic: str, row: PartitionInfo, move: Reassignment | None) -> None:
    cells = [
        "",
        f"Topic: {topic}",
        f"Partition: {row.partition}",
        f"Leader: {'none' if row.leader is None else row.leader}",
        f"Replicas: {_ids(row.replicas)}",
        f"Isr: {_ids(row.isr)}",
    ]
    if move is not None:
        cells += [f"Adding Replicas: {_ids(move.adding)}", f"Removing Replicas: {_ids(move.removing)}"]
    cells.append("Elr: " + ("N/A" if row.elr is None else _ids(row.elr)))
    cells.append("LastKnownElr: " + ("N/A" if row.last_known_elr is None else _ids(row.last_known_elr)))
    print("\t".join(cells))


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))
