"""Adversarial schedules, written by hand for what chance misses, and the bugs that they are there to find."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from ottla.controller import brokers, runtime
from ottla.controller.state import ControllerRequestContext
from ottla.env import logging
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.fetch_response import FetchResponse
from ottla.protocol.generated.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.protocol.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.generated.update_features_response import UpdateFeaturesResponse
from ottla.protocol.primitives import Message
from ottla.raft import elections, replica, segment
from ottla.raft import node as raft_node
from ottla.raft.errors import RaftError
from ottla.raft.outbound import Outbound
from ottla.raft.transitions import RoleEvent
from ottla.simulation.cluster import ClusterShape, SimulatedCluster
from ottla.simulation.invariants import Violation, check_partitions
from ottla.simulation.node import LOG_DIR, SimulatedNode
from ottla.simulation.workload import SimulatedBroker
from ottla.simulation.world import World
from tests.simulation.mutations import MUTATIONS


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    logging._sink = kept


class Stage:
    """Three voters without faults of their own; the schedule cuts and heals the links."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = SimulatedCluster(World(seed), ClusterShape(voters=3, observers=0))
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
    old.runtime.submit(CreateTopicsRequest([CreatableTopic("ghost", 1, 1)]), ControllerRequestContext(version=7))
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


def a_voter_votes_once() -> None:
    """Two stand in the same epoch and do not hear each other: the third must not make both of them leaders."""
    stage = Stage()
    third = stage.leader
    first, second = stage.followers()
    third.kill(power=False)
    stage.cut_off(first, second)
    stage.cluster.network.broken -= {
        link for node in (first, second) for link in ((node.node_id, third.node_id), (third.node_id, node.node_id))
    }
    third.start()
    for node in (first, second):
        assert node.raft is not None
        node.raft.replica.become_prospective()
        node.raft.replica.become_candidate(RoleEvent.VOTES_WON)
        assert node.runtime is not None
        node.runtime.driver.pump()
    stage.run(300)
    stage.heal()
    stage.run(3_000)


def late_answers_find_nobody_waiting() -> None:
    """The second copy of an answer that sent a deposed leader back comes when it has long followed the new one."""
    stage = Stage()
    old = stage.leader
    stage.cut_off(old)
    stage.write_alone(old, 10)
    stage.run(5_000)
    kept: list[tuple[Outbound, Message]] = []
    deliver = old.respond

    def respond(outbound: Outbound, response: Message | None, *, connection_refused: bool) -> None:
        if isinstance(response, FetchResponse) and response.responses[0].partitions[0].diverging_epoch.epoch >= 0:
            kept.append((outbound, response))
        deliver(outbound, response, connection_refused=connection_refused)

    old.respond = respond  # type: ignore[method-assign]  # the schedule listens in
    stage.heal()
    stage.run(3_000)
    assert kept, "the deposed leader was not sent back"
    for outbound, response in kept:
        deliver(outbound, response, connection_refused=False)
    stage.run(1_000)


def damage_is_seen_when_a_log_is_opened() -> None:
    """The last batch of a killed voter has a byte that is not what it was: it was never synced, so it must go."""
    stage = Stage()
    node = stage.followers()[0]
    node.flush_ms = (60_000.0, 60_000.0)
    stage.run(1_000)
    assert node.raft is not None
    assert node.raft.end_offset > node.raft.replica.durable_end_offset
    node.kill(power=False)
    node.flush_ms = (0.1, 4.0)
    path = max(path for path in node.disk.files if path.startswith(LOG_DIR) and path.endswith(".log"))
    file = node.disk.files[path]
    assert len(file.synced) < len(file.data)
    file.data[-1] ^= 1
    node.start()
    stage.run(3_000)


SCHEDULES: dict[str, Callable[[], None]] = {
    "a_voter_votes_once": a_voter_votes_once,
    "late_answers_find_nobody_waiting": late_answers_find_nobody_waiting,
    "damage_is_seen_when_a_log_is_opened": damage_is_seen_when_a_log_is_opened,
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
        self._term += 1
        self.active = True
        records = runtime.activation_records(self.state, self._bootstrap)
        if records and self._append(records, self._encoded(records), None, None):
            runtime.replay_all(self.state.image, runtime.MetadataDelta(), records)

    patch.setattr(runtime.ControllerRuntime, "on_leader", on_leader)


def _compares_lengths(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica.Replica, "up_to_date", lambda self, _epoch, end: end >= self.log.end_offset)


def _leaves_the_fenced_in_charge(patch: pytest.MonkeyPatch) -> None:
    def fence(_state: Any, broker: Any) -> list[Any]:
        return [brokers.BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=brokers.FENCE)]

    patch.setattr(brokers, "fence_broker", fence)


def _takes_every_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        raft_node.RaftNode,
        "respond",
        lambda _, outbound, response, *, connection_refused=False: outbound.on_response(response, connection_refused),
    )


def _does_not_look_at_crcs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment, "crc_matches", lambda *_: True)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a_voter_votes_once": MUTATIONS["votes_twice"],
    "late_answers_find_nobody_waiting": _takes_every_answer,
    "damage_is_seen_when_a_log_is_opened": _does_not_look_at_crcs,
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
    with pytest.raises((Violation, RaftError, KafkaError)):
        SCHEDULES[name]()


def test_voters_stand_one_after_the_other_when_their_leader_died() -> None:
    """All notice at the same moment; a split vote would cost another second."""
    for seed in range(1, 5):
        stage = Stage(seed)
        old, others = stage.leader, stage.followers()
        epoch = old.raft.epoch if old.raft is not None else 0
        old.kill()
        for node in others:
            assert node.runtime is not None
            node.runtime.driver.raft.elections.on_leader_down()
            node.runtime.driver.pump()
        stage.run(150)
        leaders = [node for node in others if node.raft is not None and node.raft.is_leader]
        assert [node.raft.epoch for node in leaders if node.raft is not None] == [epoch + 1]


def test_a_broker_that_hangs_with_the_leading_controller_is_fenced_in_its_session() -> None:
    """9 s from when it was last heard, not from when the next controller took over."""
    stage = Stage()
    old, workload = stage.leader, stage.cluster.workload
    broker = SimulatedBroker(workload, old.node_id)
    workload.brokers.append(broker)
    broker.act()
    stage.run(2_000)
    assert not image_of(stage).brokers[old.node_id].fenced
    broker.alive = False
    old.pause(60_000)
    stage.run(8_000)
    assert stage.leader is not old
    assert not image_of(stage).brokers[old.node_id].fenced
    stage.run(2_000)
    assert image_of(stage).brokers[old.node_id].fenced


def image_of(stage: Stage) -> MetadataImage:
    assert stage.leader.publisher is not None
    return stage.leader.publisher.image


def upgraded(stage: Stage, *, validate_only: bool = False) -> UpdateFeaturesResponse:
    update = FeatureUpdateKey("kraft.version", 1, upgrade_type=1)
    assert stage.leader.runtime is not None
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)
    answer: Any = stage.leader.runtime.submit(request, ControllerRequestContext(version=2))
    stage.run(1_000)
    return cast("UpdateFeaturesResponse", answer.result)


def test_static_voters_become_voters_of_the_log() -> None:
    """kraft.version 0 -> 1 while it runs; then voters change, and restarts find them in the log."""
    stage = Stage()
    nodes = stage.cluster.nodes
    assert [node.raft.kraft_version for node in nodes if node.raft is not None] == [0, 0, 0]
    assert upgraded(stage, validate_only=True).error_code == 0
    assert stage.leader.raft is not None
    assert stage.leader.raft.kraft_version == 0
    assert upgraded(stage).error_code == 0
    for node in nodes:
        assert node.raft is not None
        assert node.raft.kraft_version == 1
        assert {v.id: v.directory_id for v in node.raft.voters.voters} == stage.cluster.directories
    assert upgraded(stage).error_code == 0, "it is there already"
    for node in nodes:
        node.kill(power=True)
    for node in nodes:
        node.start()
    stage.run(6_000)
    leader, removed = stage.leader, stage.followers()[0]
    answers: list[Any] = []
    config = removed.spec.config
    leader.receive(RemoveRaftVoterRequest(config.cluster_id, config.node_id, config.directory_id), answers.append)
    stage.run(2_000)
    assert [answer.error_code for answer in answers] == [0]
    assert leader.raft is not None
    assert leader.raft.kraft_version == 1
    assert len(leader.raft.voters.voters) == 2
    stage.cluster.judge()


def test_an_upgrade_waits_until_every_voter_has_spoken() -> None:
    stage = Stage()
    silent = stage.followers()[0]
    silent.kill()
    assert stage.leader.runtime is not None
    stage.leader.runtime.driver.resign()
    stage.run(4_000)
    refused = upgraded(stage)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "not all voters" in (refused.error_message or "")
    assert stage.leader.raft is not None
    assert stage.leader.raft.kraft_version == 0


def test_a_vote_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS["keeps_its_epoch_when_it_votes"](monkeypatch)
    with pytest.raises((Violation, RaftError)):
        a_voter_votes_once()
