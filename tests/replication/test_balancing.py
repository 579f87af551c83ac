"""Plans for draining and balancing: properties that hold for any cluster."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.balancing import BrokerInfo, ImpossiblePlan, plan_balance, plan_drain, plan_factor, spread


def made_up(seed: int, brokers: int, partitions: int, factor: int, racks: int = 0):
    chance = random.Random(seed)
    nodes = [BrokerInfo(i, f"r{i % racks}" if racks else None) for i in range(1, brokers + 1)]
    current = {("t", p): tuple(chance.sample(range(1, brokers + 1), factor)) for p in range(partitions)}
    return nodes, current


@given(st.integers(0, 10_000), st.integers(2, 8), st.integers(0, 40), st.integers(1, 5))
def test_a_drained_broker_is_empty_and_nothing_else_moves(seed, brokers, partitions, factor):
    factor = min(factor, brokers)
    nodes, current = made_up(seed, brokers, partitions, factor)
    if factor == brokers and partitions:
        with pytest.raises(ImpossiblePlan):
            plan_drain(nodes, current, 1)
        if factor > 1:
            fewer = plan_drain(nodes, current, 1, allow_fewer=True)
            expected = {p: tuple(r for r in replicas if r != 1) for p, replicas in current.items() if 1 in replicas}
            assert fewer == expected
        return
    plan = plan_drain(nodes, current, 1)
    for partition, replicas in {**current, **plan}.items():
        assert 1 not in replicas
        assert len(set(replicas)) == factor
        assert len(set(replicas) - set(current[partition])) == (1 in current[partition])
    assert plan_drain(nodes, {**current, **plan}, 1) == {}


def test_draining_beside_a_node_that_is_down():
    """Only nodes that are up count: they may have room, and a plan never leaves replicas on dead nodes alone."""
    up = [BrokerInfo(1), BrokerInfo(2), BrokerInfo(4)]
    assert plan_drain(up, {("t", 0): (1, 2, 3)}, 1) == {("t", 0): (4, 2, 3)}
    with pytest.raises(ImpossiblePlan, match="no replica on a node that is up"):
        plan_drain([BrokerInfo(1)], {("t", 0): (1, 2)}, 1, allow_fewer=True)
    with pytest.raises(ImpossiblePlan, match=r"Start another node$"):
        plan_drain([BrokerInfo(1)], {("t", 0): (1,)}, 1, allow_fewer=True)


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(0, 40), st.integers(1, 5))
def test_balancing_leaves_no_two_more_on_one_broker(seed, brokers, partitions, factor):
    factor = min(factor, brokers)
    nodes, current = made_up(seed, brokers, partitions, factor)
    plan = plan_balance(nodes, current)
    after = {**current, **plan}
    counts = spread(nodes, after)
    replicas = [count[0] for count in counts.values()]
    assert max(replicas) - min(replicas) <= 1
    assert all(len(set(assignment)) == factor for assignment in after.values())
    before = spread(nodes, current)
    leaders = [count[1] for count in counts.values()]
    assert max(leaders) - min(leaders) <= max(
        max(c[1] for c in before.values()) - min(c[1] for c in before.values()), 1
    )
    assert plan_balance(nodes, after) == {}


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 6))
def test_a_new_factor_keeps_leaders(seed, before, after):
    nodes, current = made_up(seed, 6, 10, before)
    plan = plan_factor(nodes, current, after)
    for partition, replicas in {**current, **plan}.items():
        assert len(set(replicas)) == after
        assert replicas[0] == current[partition][0]


def test_racks_stay_apart():
    nodes = [BrokerInfo(1, "a"), BrokerInfo(2, "a"), BrokerInfo(3, "b"), BrokerInfo(4, "b")]
    current = {("t", p): (1, 3) for p in range(8)}
    after = {**current, **plan_balance(nodes, current)}
    assert all({r in (1, 2) for r in replicas} == {True, False} for replicas in after.values())
    drained = plan_drain(nodes, after, 3)
    assert all(4 in replicas for replicas in drained.values())
