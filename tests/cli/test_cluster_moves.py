"""Moving partitions by the word of a broker that lags behind its controller: nobody keeps replicas that it has lost."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cli.cluster import moves as cluster_moves
from ottla.cli.cluster.moves import move
from ottla.client.balancing import plan_balance
from ottla.client.reassignments import view
from ottla.protocol.generated.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.protocol.generated.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.protocol.generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class LaggingCluster:
    """Brokers 1 and 2 and the topic t. The controller lists a move `listed` times; the broker that is asked for metadata
    shows the old replicas and the new ones for `lag` looks more."""

    def __init__(self, replicas: list[list[int]], listed: int, lag: int) -> None:
        self.replicas = dict(enumerate(replicas))
        self.asked: list[dict[int, list[int]]] = []
        self._moving: dict[int, list[int]] = {}
        self._each = listed, lag
        self._listed = self._lag = 0

    def start(self, wanted: dict[int, list[int]]) -> None:
        self.asked.append(wanted)
        self._moving = wanted
        self._listed, self._lag = self._each

    def controller_call(self, _name: str, request: Any, answer: type, _error: object = None) -> Any:
        if answer is AlterPartitionReassignmentsResponse:
            self.start({p.partition_index: list(p.replicas) for t in request.topics for p in t.partitions})
            return AlterPartitionReassignmentsResponse()
        if not self._listed:
            return ListPartitionReassignmentsResponse()
        self._listed -= 1
        rows = [
            OngoingPartitionReassignment(index, [*target, *self.replicas[index]], target, self.replicas[index])
            for index, target in self._moving.items()
        ]
        return ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment("t", rows)])

    def describe(self, _name: str, _topics: object) -> MetadataResponse:
        shown = self.replicas | {index: [*target, *self.replicas[index]] for index, target in self._moving.items()}
        if not self._listed and not self._lag:
            self.replicas |= self._moving
            self._moving = {}
            shown = self.replicas
        elif not self._listed:
            self._lag -= 1
        rows = [MetadataResponsePartition(0, index, r[0], 0, r, r) for index, r in shown.items()]
        brokers = [MetadataResponseBroker(node, "h", node) for node in (1, 2)]
        return MetadataResponse(0, brokers, "c", 1, [MetadataResponseTopic(0, "t", partitions=rows)])


def test_a_broker_that_lags_does_not_add_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_moves, "POLL_SECONDS", 0.0)
    cluster: Any = LaggingCluster([[1], [1], [1], [1]], listed=3, lag=5)
    move(cluster, lambda now: plan_balance(now.brokers, now.replicas), 8, "balancing")
    assert sorted(map(tuple, cluster.replicas.values())) == [(1,), (1,), (2,), (2,)]
    assert len(cluster.asked) == 1, "the plan was made once, and was right"


def test_a_move_that_ends_between_the_questions_is_over() -> None:
    cluster: Any = LaggingCluster([[1]], listed=1, lag=1)
    cluster.start({0: [2]})
    seen = view(cluster)
    assert seen.replicas == {("t", 0): (2,)}
    assert seen.moving == set()
