"""Reassignments over the wire: what the cluster looks like, asking for moves, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.balancing import Assignment, BrokerInfo, Partition
from ottla.client.errors import check
from ottla.model.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

TIMEOUT_MS = 60_000
NO_REASSIGNMENT = int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
ELECTION_NOT_NEEDED = int(ErrorCode.ELECTION_NOT_NEEDED)
PREFERRED = 0


@dataclass(slots=True, kw_only=True)
class ClusterView:
    cluster_id: str
    controller_id: int
    brokers: list[BrokerInfo]
    addresses: dict[int, str]
    replicas: Assignment
    """As they will be when what is under way is done."""
    leaders: dict[Partition, int]
    isr: dict[Partition, tuple[int, ...]]
    moving: set[Partition] = field(default_factory=set)

    @property
    def under_replicated(self) -> list[Partition]:
        return sorted(p for p, replicas in self.replicas.items() if set(self.isr[p]) < set(replicas))

    @property
    def leaderless(self) -> list[Partition]:
        return sorted(p for p, leader in self.leaders.items() if leader < 0)


def view(cluster: Cluster) -> ClusterView:
    """A broker's word on where things are, the controller's on what is moving. A move that ends while the two are asked
    is known from before: its partition would seem to keep the replicas that it has just lost."""
    before = ongoing(cluster)
    metadata = cluster.describe("describeCluster", None)
    view = ClusterView(
        cluster_id=metadata.cluster_id or "",
        controller_id=metadata.controller_id,
        brokers=[BrokerInfo(b.node_id, b.rack) for b in sorted(metadata.brokers, key=lambda b: b.node_id)],
        addresses={b.node_id: f"{b.host}:{b.port}" for b in metadata.brokers},
        replicas={},
        leaders={},
        isr={},
    )
    for topic in metadata.topics:
        for item in topic.partitions:
            key = (topic.name or "", item.partition_index)
            view.replicas[key] = tuple(item.replica_nodes)
            view.leaders[key] = item.leader_id
            view.isr[key] = tuple(item.isr_nodes)
    now = ongoing(cluster)
    view.moving.update(now)
    for key, replicas in {**before, **now}.items():
        if key in view.replicas:
            view.replicas[key] = replicas
    return view


def ongoing(cluster: Cluster) -> Assignment:
    """Partitions that are being moved, each with the replicas that it will have."""
    from ottla.protocol.generated.list_partition_reassignments_request import ListPartitionReassignmentsRequest
    from ottla.protocol.generated.list_partition_reassignments_response import ListPartitionReassignmentsResponse

    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    answer = cluster.controller_call(
        "listPartitionReassignments", request, ListPartitionReassignmentsResponse, lambda a: a.error_code
    )
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, item.partition_index): tuple(r for r in item.replicas if r not in item.removing_replicas)
        for topic in answer.topics
        for item in topic.partitions
    }


def reassign(cluster: Cluster, plan: Assignment) -> None:
    """Ask for the moves; KafkaError for the first that is refused."""
    _alter(cluster, {key: list(replicas) for key, replicas in plan.items()})


def cancel(cluster: Cluster, partitions: Iterable[Partition]) -> None:
    _alter(cluster, dict.fromkeys(partitions))


def _alter(cluster: Cluster, targets: dict[Partition, list[int] | None]) -> None:
    from ottla.protocol.generated.alter_partition_reassignments_request import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )
    from ottla.protocol.generated.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse

    topics: dict[str, ReassignableTopic] = {}
    for (name, index), replicas in targets.items():
        topics.setdefault(name, ReassignableTopic(name, [])).partitions.append(ReassignablePartition(index, replicas))
    request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=list(topics.values()))
    answer = cluster.controller_call(
        "alterPartitionReassignments", request, AlterPartitionReassignmentsResponse, lambda a: a.error_code
    )
    check(answer.error_code, answer.error_message)
    for topic in answer.responses:
        for item in topic.partitions:
            if item.error_code != NO_REASSIGNMENT:
                check(item.error_code, item.error_message)


def elect_preferred(cluster: Cluster, partitions: Iterable[Partition]) -> int:
    """Give leadership to the first replica of each; how many changed hands."""
    from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest, TopicPartitions
    from ottla.protocol.generated.elect_leaders_response import ElectLeadersResponse

    topics: dict[str, TopicPartitions] = {}
    for name, index in partitions:
        topics.setdefault(name, TopicPartitions(name, [])).partitions.append(index)
    if not topics:
        return 0
    request = ElectLeadersRequest(
        election_type=PREFERRED, topic_partitions=list(topics.values()), timeout_ms=TIMEOUT_MS
    )
    answer = cluster.controller_call("electLeaders", request, ElectLeadersResponse, lambda a: a.error_code)
    check(answer.error_code)
    return sum(not result.error_code for topic in answer.replica_election_results for result in topic.partition_result)
