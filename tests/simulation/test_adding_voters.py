"""AddRaftVoter of an observer: 0 only for one that has fetched since, and when the voter set with it is in the log."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.simulation.cluster import ClusterShape, SimulatedCluster
from ottla.simulation.node import SimulatedNode
from ottla.simulation.world import World


def grown() -> tuple[SimulatedCluster, SimulatedNode, SimulatedNode]:
    """Three voters and an observer that has caught up: the cluster, its leader, the observer."""
    cluster = SimulatedCluster(World(1), ClusterShape(voters=3, observers=1, dynamic=True))
    for node in cluster.nodes:
        node.start()
    run(cluster, 10_000)
    leader = next(node for node in cluster.nodes if node.runtime is not None and node.runtime.active)
    assert leader.raft is not None
    assert leader.raft.kraft_version == 1
    return cluster, leader, cluster.nodes[3]


def run(cluster: SimulatedCluster, ms: float) -> None:
    cluster.world.run_until(cluster.world.now_ms + ms, lambda: None)


def add(leader: SimulatedNode, node: SimulatedNode, *, ack_when_committed: bool) -> list[int]:
    """Where the error code of the answer will be."""
    config = node.spec.config
    listeners = [Listener("CONTROLLER", "node", 9093)]
    request = AddRaftVoterRequest(
        config.cluster_id, 5_000, config.node_id, config.directory_id, listeners, ack_when_committed
    )
    codes: list[int] = []
    leader.receive(request, lambda response: codes.append(response.error_code))  # type: ignore[attr-defined]
    return codes


def voters(leader: SimulatedNode) -> list[int]:
    assert leader.raft is not None
    return sorted(leader.raft.voters.ids)


def test_one_that_has_just_died_is_not_counted() -> None:
    cluster, leader, observer = grown()
    observer.kill()
    codes = add(leader, observer, ack_when_committed=True)
    run(cluster, 4_000)
    assert codes == []
    run(cluster, 2_000)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]
    assert voters(leader) == [1, 2, 3]


@pytest.mark.parametrize("ack_when_committed", [True, False])
def test_one_that_runs_is_counted(ack_when_committed: bool) -> None:
    cluster, leader, observer = grown()
    codes = add(leader, observer, ack_when_committed=ack_when_committed)
    if not ack_when_committed:
        assert codes == [ErrorCode.NONE]
        assert voters(leader) == [1, 2, 3, 4]
    run(cluster, 4_000)
    assert codes == [ErrorCode.NONE]
    assert voters(leader) == [1, 2, 3, 4]


def test_an_answer_before_the_commit_needs_a_voter_that_has_caught_up() -> None:
    cluster, leader, observer = grown()
    observer.kill()
    run(cluster, 60_000)
    leader = next(node for node in cluster.nodes if node.runtime is not None and node.runtime.active)
    codes = add(leader, observer, ack_when_committed=False)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]
    run(cluster, 10_000)
    assert voters(leader) == [1, 2, 3]
