"""Where replicas lie, and moving them: between brokers and between a broker's log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, check, error_of
from ottla.client.topics import check_named
from ottla.model.errors import ErrorCode, KafkaError

Partition = tuple[str, int]


class Placement(NamedTuple):
    replicas: tuple[int, ...]
    directories: tuple[str, ...]


def log_dirs_of(cluster: Cluster, broker: int) -> dict[Partition, tuple[str, str | None]]:
    """The directory of each replica on a broker, and the one that it is moving to."""
    from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
    from ottla.protocol.generated.describe_log_dirs_response import DescribeLogDirsResponse

    answer = cluster.node_call("describeLogDirs", broker, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
    check(answer.error_code)
    directories: dict[Partition, tuple[str, str | None]] = {}
    for directory in answer.results:
        for topic in directory.topics:
            for row in topic.partitions:
                where = (topic.name, row.partition_index)
                now, future = directories.get(where, ("", None))
                directories[where] = (now, directory.log_dir) if row.is_future_key else (directory.log_dir, future)
    return directories


def current_placements(
    cluster: Cluster, topics: Iterable[str], *, missing_ok: bool = False
) -> dict[Partition, Placement]:
    """Replicas with their directories, where brokers report them. Raises KafkaError for a topic that does not exist."""
    names = sorted(set(topics))
    check_named(*names)
    described = cluster.describe("describeTopics", names)
    replicas: dict[Partition, tuple[int, ...]] = {}
    for topic in described.topics:
        if topic.error_code:
            if missing_ok and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise KafkaError(ErrorCode(topic.error_code), f"Topic {topic.name} not found.")
        for row in topic.partitions:
            replicas[topic.name or "", row.partition_index] = tuple(row.replica_nodes)
    directories: dict[int, dict[Partition, tuple[str, str | None]]] = {}
    for broker in {broker for listed in replicas.values() for broker in listed}:
        try:
            directories[broker] = log_dirs_of(cluster, broker)
        except ClientError:  # a broker that is down reports no directories
            directories[broker] = {}
    return {
        where: Placement(listed, tuple(directories[broker].get(where, ("", None))[0] or "any" for broker in listed))
        for where, listed in replicas.items()
    }


def placed_evenly(
    current: Mapping[Partition, Placement], brokers: Sequence[int], racks: Mapping[int, str]
) -> dict[Partition, Placement]:
    """Each topic's partitions spread over the brokers, leaders in turn, replicas of one partition on several racks."""
    plan: dict[Partition, Placement] = {}
    ordered = _by_rack(brokers, racks)
    for topic in sorted({topic for topic, _ in current}):
        rows = sorted(where for where in current if where[0] == topic)
        factor = len(current[rows[0]].replicas)
        if factor > len(ordered):
            raise ValueError(f"Replication factor: {factor} larger than available brokers: {len(ordered)}.")
        for index, where in enumerate(rows):
            shift = 1 + index // len(ordered) % max(len(ordered) - 1, 1)
            chosen = [ordered[index % len(ordered)]]
            for step in range(1, factor):
                offset = (shift + step - 1) % max(len(ordered) - 1, 1) + 1 if not racks else step
                chosen.append(ordered[(index + offset) % len(ordered)])
            plan[where] = Placement(tuple(chosen), ("any",) * factor)
    return plan


def _by_rack(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """Neighbours on different racks, as far as there are any."""
    groups: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        groups.setdefault(racks.get(broker, ""), []).append(broker)
    ordered: list[int] = []
    while any(groups.values()):
        ordered += [members.pop(0) for _, members in sorted(groups.items()) if members]
    return ordered


def alter_reassignments(
    cluster: Cluster, targets: Mapping[Partition, Sequence[int] | None], *, allow_factor_change: bool
) -> dict[Partition, KafkaError]:
    """Start them, or cancel those with None; each partition's refusal."""
    from ottla.protocol.generated.alter_partition_reassignments_request import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )
    from ottla.protocol.generated.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse

    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), replicas in targets.items():
        row = ReassignablePartition(partition, None if replicas is None else list(replicas))
        topics.setdefault(topic, []).append(row)
    rows = [ReassignableTopic(name, listed) for name, listed in topics.items()]
    request = AlterPartitionReassignmentsRequest(60000, allow_factor_change, rows)
    answer = cluster.controller_call(
        "alterPartitionReassignments", request, AlterPartitionReassignmentsResponse, lambda a: a.error_code
    )
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, row.partition_index): error_of(row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
        if row.error_code
    }


def move_log_dirs(cluster: Cluster, placements: Mapping[Partition, Placement]) -> list[str]:
    """Ask brokers to move replicas whose placement names a directory; the replicas that are moving."""
    from ottla.protocol.generated.alter_replica_log_dirs_request import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )
    from ottla.protocol.generated.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse

    moving = []
    for (topic, partition), placement in sorted(placements.items()):
        for broker, directory in zip(placement.replicas, placement.directories, strict=True):
            if directory == "any":
                continue
            row = AlterReplicaLogDir(directory, [AlterReplicaLogDirTopic(topic, [partition])])
            request = AlterReplicaLogDirsRequest([row])
            answer = cluster.node_call("alterReplicaLogDirs", broker, request, AlterReplicaLogDirsResponse)
            check(answer.results[0].partitions[0].error_code)
            moving.append(f"{topic}-{partition}-{broker}")
    return moving
