"""Offsets of many partitions, one request to each leader."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.cluster import Cluster
from ottla.client.group_lag import Partition
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse


def leader_offsets(cluster: Cluster, leaders: Mapping[Partition, int], timestamp: int) -> dict[Partition, int]:
    """Asks the leaders in `leaders`. Leaves out a partition whose leader has just moved; the next call finds it."""
    by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for (topic, index), leader in leaders.items():
        rows = by_leader.setdefault(leader, {}).setdefault(topic, [])
        rows.append(ListOffsetsPartition(index, -1, timestamp))
    offsets: dict[Partition, int] = {}
    for leader, topics in by_leader.items():
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, rows) for name, rows in topics.items()])
        answer = cluster.node_call("listOffsets", leader, request, ListOffsetsResponse)
        for topic_answer in answer.topics:
            for row in topic_answer.partitions:
                if not row.error_code:
                    offsets[topic_answer.name, row.partition_index] = row.offset
    return offsets
