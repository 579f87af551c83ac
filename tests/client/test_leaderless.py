"""Offsets where one partition has no leader: the others answer at once."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client import offsets
from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.generated.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class HalfCluster(Cluster):
    """Partition 0 is led by node 1; partition 1 has no leader."""

    def describe(self, name: str, topics: Any = ()) -> MetadataResponse:
        del name, topics
        rows = [
            MetadataResponsePartition(partition_index=0, leader_id=1),
            MetadataResponsePartition(ErrorCode.LEADER_NOT_AVAILABLE, partition_index=1, leader_id=-1),
        ]
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=rows)])

    def node_call(self, name: str, node_id: int, request: Any, answer: Any, highest: int | None = None) -> Any:
        del name, request, answer, highest
        assert node_id == 1
        row = ListOffsetsPartitionResponse(partition_index=0, offset=7)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])


def test_end_offsets_leave_out_a_partition_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    with HalfCluster(client_settings("127.0.0.1:1")) as cluster:
        assert offsets.end_offsets(cluster, [("t", 0), ("t", 1)]) == {("t", 0): 7}
    assert pauses == []
