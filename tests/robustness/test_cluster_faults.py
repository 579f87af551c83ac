"""Three nodes, replication factor 3, min ISR 2, under idempotent load: faults lose, double and reorder nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.robustness.cluster_faults import (
    ALL,
    FIRST_NODE_HANG,
    HANG,
    HANG_THEN_KILL,
    KILL,
    LEADER_HANG,
    LONG_HANG,
    PARTITIONS,
    create_topic,
    fault,
    in_sync,
    run_rounds,
)
from tests.robustness.cluster_process import ClusterProcess, wait_for
from tests.robustness.transactional_load import TransactionalSender, check


@pytest.mark.timeout(300)
def test_a_few_faults(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        print(run_rounds(cluster, [KILL, HANG, ALL, HANG_THEN_KILL], seed=1))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_faults(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        gaps = run_rounds(cluster, [KILL, HANG, HANG_THEN_KILL, ALL] * 48 + [LONG_HANG] * 8, seed=2)
    print({kind: round(gap, 2) for kind, gap in gaps.items()})
    assert gaps[KILL] <= 2.0
    assert gaps[HANG] <= 10.0
    assert gaps[LONG_HANG] <= 10.0
    assert gaps[HANG_THEN_KILL] <= 10.0
    assert gaps[ALL] <= 15.0


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_long_hangs_in_every_role(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        gaps = run_rounds(cluster, [LEADER_HANG, LONG_HANG] * 6, seed=6)
    assert max(gaps.values()) <= 10.0, gaps


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_node_that_hangs_again_as_soon_as_it_leads_again(tmp_path: Path) -> None:
    """The producers have just come back to it. Its followers must have asked it for records by then: else the producers'
    queues hold only records that it cannot acknowledge, and nobody hears anything until it comes back."""
    with ClusterProcess(tmp_path) as cluster:
        gaps = run_rounds(cluster, [FIRST_NODE_HANG] * 8, seed=7)
    assert max(gaps.values()) <= 10.0, gaps


@pytest.mark.timeout(300)
def test_transactions_survive_a_few_faults(tmp_path: Path) -> None:
    transactional_rounds(tmp_path, [KILL, HANG, ALL], seed=4)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_transactions_survive_many_faults(tmp_path: Path) -> None:
    transactional_rounds(tmp_path, [KILL, HANG, HANG_THEN_KILL, ALL] * 15, seed=5)


def transactional_rounds(directory: Path, kinds: list[str], seed: int) -> None:
    chance = random.Random(seed)
    with ClusterProcess(directory, properties={"transaction.state.log.num.partitions": "3"}) as cluster:
        create_topic(cluster, "x")
        sender = TransactionalSender("tx", cluster.bootstrap_servers, "x", PARTITIONS)
        for kind in kinds:
            before = len(sender.committed)
            wait_for(lambda before=before: len(sender.committed) >= before + 5, 60, "transactions are committed")
            fault(cluster, kind, chance)
            cluster.wait_up()
        before = len(sender.committed)
        wait_for(lambda: len(sender.committed) >= before + 5, 60, "transactions are committed again")
        sender.stop()
        wait_for(lambda: in_sync(cluster, "x"), 60, "in sync")
        assert check(cluster.bootstrap_servers, sender) >= len(sender.committed)
        print(len(sender.committed), len(sender.aborted), len(sender.unknown))
