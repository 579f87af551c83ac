"""Adversarial schedules, written by hand for what chance misses, and the bugs that they are there to find."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.controller import brokers, runtime
from ottla.controller.state import RequestContext
from ottla.env import logging
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.raft import elections, replica
from ottla.simulation.cluster import Shape, SimulatedCluster
from ottla.simulation.invariants import Violation, check_partitions
from ottla.simulation.node import SimulatedNode
from ottla.simulation.world import World


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    logging._sink = kept


class Stage:
    """Three voters without faults of their own; the schedule cuts and heals the links."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = SimulatedCluster(World(seed), Shape(voters=3, observers=0))
        self.cluster.start()
        self.run(6_000)

    def run(self, ms: float) -> None:
        self.cluster.run(ms)

    @property
    def leader(self) -> SimulatedNode:
        leaders = [n for n in self.cluster.nodes if n.raft is not None and n.raft.is_leader]
        return max(leaders, key=lambda n: n.raft.epoch if n.raft else 0)

    def followers(self) -> list[SimulatedNode]:
        return [node for node in self.cluster.nodes if node is not self.leader]

    def cut_off(self, *nodes: SimulatedNode) -> None:
        """From everybody, each other included."""
        ids = {node.node_id for node in nodes}
        every = [node.node_id for node in self.cluster.nodes]
        self.cluster.network.broken |= {(a, b) for a in every for b in every if a != b and (a in ids or b in ids)}

    def heal(self) -> None:
        self.cluster.network.broken.clear()

    def write_alone(self, node: SimulatedNode, count: int) -> None:
        """Records that reach this disk and no other."""
        assert node.raft is not None
        for index in range(count):
            node.raft.append([b"\x01\x11\x00\x00" + bytes(0 * index)])
        node.raft.sync()
        node.raft.replica.durable_end_offset = node.raft.end_offset


def isolated_leader_resigns() -> None:
    """Check-quorum: whoever hears of no majority must not go on believing that it leads."""
    stage = Stage()
    old = stage.leader
    stage.cut_off(old)
    stage.run(5_000)
    if old.raft is not None and old.raft.is_leader:
        raise Violation("a leader without a majority still leads after 5 s")


def undone_decisions_are_forgotten() -> None:
    """A leader decides while it is cut off, loses, and leads again: what was undone must not be in its mind."""
    stage = Stage()
    old = stage.leader
    stage.cut_off(old)
    assert old.runtime is not None
    old.runtime.submit(CreateTopicsRequest([CreatableTopic("ghost", 1, 1)]), RequestContext(version=7))
    assert "ghost" in old.runtime.state.image.topics_by_name
    stage.run(6_000)
    stage.heal()
    stage.run(3_000)
    for node in stage.followers():
        if node is not old:
            node.pause(4_000)
    assert stage.leader.runtime is not None
    stage.leader.runtime.driver.resign()
    stage.run(4_000)
    assert stage.leader is old, "the schedule could not bring the old leader back"
    stage.run(2_000)
    assert old.runtime is not None
    if "ghost" in old.runtime.state.image.topics_by_name:
        raise Violation("the controller decides on a topic that was never committed")


def the_longer_log_is_not_the_newer(seed: int = 1) -> None:
    """A deposed leader has more records than anybody, of an older epoch: it must not win, or it undoes a commit."""
    stage = Stage(seed)
    old = stage.leader
    stage.cut_off(old)
    stage.write_alone(old, 40)
    stage.run(5_000)
    new = stage.leader
    assert new is not old, "nobody took over"
    other = next(node for node in stage.cluster.nodes if node not in (old, new))
    stage.heal()
    new.kill()
    old.kill()
    other.pause(20)
    old.start()
    # Everybody else is gone but one that has what the new leader committed.
    stage.run(8_000)


def silent_brokers_lose_their_leaderships() -> None:
    """Two brokers go silent one after the other: whoever is fenced leads nothing."""
    stage = Stage()
    brokers = stage.cluster.workload.brokers
    for broker in brokers[:2]:
        broker.alive = False
        stage.run(12_000)
    image = stage.leader.publisher.image if stage.leader.publisher is not None else None
    assert image is not None
    assert [image.brokers[broker.id].fenced for broker in brokers] == [True, True, False]
    assert image.topics_by_name
    check_partitions(image)


SCHEDULES: dict[str, Callable[[], None]] = {
    "isolated_leader_resigns": isolated_leader_resigns,
    "undone_decisions_are_forgotten": undone_decisions_are_forgotten,
    "the_longer_log_is_not_the_newer": the_longer_log_is_not_the_newer,
    "silent_brokers_lose_their_leaderships": silent_brokers_lose_their_leaderships,
}


def _without_check_quorum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections.Elections, "_check_quorum", lambda *_: None)


def _keeps_its_image(patch: pytest.MonkeyPatch) -> None:
    def on_leader(self: Any) -> None:
        if self.state.image.empty:
            self.state.image = self.publisher.image.copy()
        self.state.sessions.clear()
        self.active = True
        records = runtime.activation_records(self.state, self._bootstrap)
        if records:
            self._append(records, None, None)

    patch.setattr(runtime.ControllerRuntime, "on_leader", on_leader)


def _compares_lengths(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica.Replica, "up_to_date", lambda self, _epoch, end: end >= self.log.end_offset)


def _leaves_the_fenced_in_charge(patch: pytest.MonkeyPatch) -> None:
    def fence(_state: Any, broker: Any) -> list[Any]:
        return [brokers.BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=brokers.FENCE)]

    patch.setattr(brokers, "fence_broker", fence)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "isolated_leader_resigns": _without_check_quorum,
    "undone_decisions_are_forgotten": _keeps_its_image,
    "the_longer_log_is_not_the_newer": _compares_lengths,
    "silent_brokers_lose_their_leaderships": _leaves_the_fenced_in_charge,
}


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_the_schedule_is_survived(name: str) -> None:
    SCHEDULES[name]()


@pytest.mark.parametrize("name", sorted(BUGS))
def test_the_schedule_finds_its_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    with pytest.raises(Violation):
        SCHEDULES[name]()
