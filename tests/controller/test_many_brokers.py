"""Decisions for several brokers, without any of them: placement, elections, reassignment, and a random walk.

After every step of the walk: a leader is alive, in the ISR and a replica; ISR and ELR are disjoint and replicas;
epochs never fall; replaying the records into a second image gives the first.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.controller.node import CLUSTER_ID, node_properties
from tests.controller.test_decisions_of_kafka import Quorum

from ottla.controller.brokers import fence_stale_brokers
from ottla.controller.config_rules import ConfigRules
from ottla.controller.controller import Controller
from ottla.controller.placement import place_replicas
from ottla.controller.state import ControllerRequestContext, ControllerSettings, ControllerState
from ottla.env.config.load import load
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import RECOVERING, BrokerRegistration, MetadataImage
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord
from ottla.metadata.replay import replay_all
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_NODE, Uuid
from ottla.protocol.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.generated.alter_partition_request import AlterPartitionRequest, BrokerState
from ottla.protocol.generated.alter_partition_request import PartitionData as AlterPartitionData
from ottla.protocol.generated.alter_partition_request import TopicData as AlterPartitionTopic
from ottla.protocol.generated.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_registration_request import BrokerRegistrationRequest, Feature
from ottla.protocol.generated.controller_registration_request import ControllerRegistrationRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest
from ottla.protocol.generated.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.protocol.generated.unregister_broker_request import UnregisterBrokerRequest
from ottla.protocol.primitives import Message
from ottla.runtime.clock import SystemRandom


class Clock:
    now = 0.0

    def time_ms(self) -> int:
        return int(self.now)

    def monotonic_ms(self) -> float:
        return self.now


def directory(broker_id: int, index: int = 0) -> Uuid:
    return Uuid(bytes([(200 + broker_id) % 256, index]) * 8)


class Cluster:
    """A controller in memory: every decision is replayed at once into two images."""

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.clock = Clock()
        self.quorum = Quorum()
        config = load({**node_properties(Path("/nowhere")), **(properties or {})})
        self.state = ControllerState(
            settings=ControllerSettings(cluster_id=CLUSTER_ID, node_id=100),
            rules=ConfigRules(config),
            quorum=self.quorum,
            clock=self.clock,
            random=SystemRandom(),
        )
        self.controller = Controller(self.state)
        self.second = MetadataImage()
        self.incarnations = 0
        levels = [FeatureLevelRecord("metadata.version", 30), FeatureLevelRecord("eligible.leader.replicas.version", 1)]
        self.apply([*levels, ConfigRecord(4, "", "min.insync.replicas", "2")])

    def apply(self, records: list[Message]) -> None:
        for image in (self.state.image, self.second):
            replay_all(image, MetadataDelta(), records)
        self.quorum.end_offset += len(records)

    def ask(self, request: Message, version: int | None = None) -> Any:
        context = ControllerRequestContext(version=request.MAX_VERSION if version is None else version)
        decision = self.controller.decide(request, context)
        self.apply(decision.records)
        return decision.response

    def register(
        self, broker_id: int, *, previous_epoch: int = -1, directories: int = 1, rack: str | None = None
    ) -> Any:
        self.incarnations += 1
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(self.incarnations.to_bytes(16, "big")),
            features=[Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            log_dirs=[directory(broker_id, index) for index in range(directories)],
            previous_broker_epoch=previous_epoch,
            rack=rack,
        )
        return self.ask(request)

    def beat(
        self, broker_id: int, *, fence: bool = False, shut_down: bool = False, offline: list[Uuid] | None = None
    ) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id, self.state.image.brokers[broker_id].epoch, self.quorum.end_offset - 1, fence, shut_down
        )
        request.offline_log_dirs = offline or []
        return self.ask(request)

    def join(self, *broker_ids: int, **options: Any) -> None:
        for broker_id in broker_ids:
            assert self.register(broker_id, **options).error_code == 0
            assert not self.beat(broker_id).is_fenced

    def create(self, name: str, partitions: int, replicas: int) -> Any:
        return self.ask(CreateTopicsRequest([CreatableTopic(name, partitions, replicas)])).topics[0]

    def partition(self, name: str, index: int = 0) -> Any:
        return self.state.image.partition(name, index)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.join(1, 2, 3)
    return made


def registration(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        id=broker_id, epoch=1, incarnation_id=Uuid(bytes(16)), listeners={}, features={}, rack=rack, fenced=fenced
    )


def test_placement_spreads_leaders_and_racks() -> None:
    brokers = [registration(i, rack="ab"[i % 2]) for i in range(6)]
    placed = place_replicas(brokers, 60, 2, SystemRandom())
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders) == set(range(6))
    assert max(leaders.values()) - min(leaders.values()) <= 2
    assert all(len({replica % 2 for replica in replicas}) == 2 for replicas in placed), "two replicas, two racks"
    assert all(len(set(replicas)) == 2 for replicas in placed)


def test_placement_leads_on_unfenced_brokers_only() -> None:
    brokers = [registration(1), registration(2, fenced=True), registration(3, fenced=True)]
    placed = place_replicas(brokers, 10, 3, SystemRandom())
    assert {replicas[0] for replicas in placed} == {1}
    assert {tuple(sorted(replicas)) for replicas in placed} == {(1, 2, 3)}
    with pytest.raises(KafkaError, match="All brokers are currently fenced"):
        place_replicas(brokers[1:], 1, 1, SystemRandom())
    with pytest.raises(KafkaError, match="cannot be reached because only 3"):
        place_replicas(brokers, 1, 4, SystemRandom())


def test_a_fenced_leader_hands_over_within_the_isr(cluster: Cluster) -> None:
    cluster.create("t", 1, 3)
    old = cluster.partition("t")
    cluster.beat(old.leader, fence=True)
    new = cluster.partition("t")
    assert new.leader != old.leader
    assert old.leader not in new.isr
    assert new.leader_epoch == old.leader_epoch + 1


def test_the_elr_keeps_who_left_an_isr_below_min(cluster: Cluster) -> None:
    cluster.create("t", 1, 3)
    for broker_id in (1, 2, 3):
        cluster.beat(broker_id, fence=True)
    dead = cluster.partition("t")
    assert (dead.leader, dead.isr) == (NO_NODE, ())
    assert len(dead.elr) == 2, "the first to leave was not needed for min.insync.replicas = 2"
    left_first = ({1, 2, 3} - set(dead.elr)).pop()
    cluster.beat(left_first)
    assert cluster.partition("t").leader == NO_NODE, "not eligible: it may lack committed records"
    back = dead.elr[0]
    cluster.beat(back)
    assert cluster.partition("t").leader == back


def test_an_unclean_restart_costs_the_eligibility(cluster: Cluster) -> None:
    cluster.create("t", 1, 3)
    for broker_id in (1, 2, 3):
        cluster.beat(broker_id, fence=True)
    eligible = cluster.partition("t").elr[0]
    cluster.clock.now += 10_000
    cluster.register(eligible)
    assert eligible not in cluster.partition("t").elr
    clean = cluster.partition("t").elr[0]
    cluster.register(clean, previous_epoch=cluster.state.image.brokers[clean].epoch)
    assert clean in cluster.partition("t").elr


def test_a_partition_has_a_leader_again_after_all_its_replicas_were_killed() -> None:
    """The last ISR lost its leader before its last member: no leader is the last known leader (simulator, seed 36)."""
    cluster = Cluster()
    cluster.join(1, 2, 3, directories=2)
    cluster.create("t", 1, 3)
    leader = cluster.partition("t").leader
    topic_id = cluster.state.image.topics_by_name["t"].id
    other, last = sorted({1, 2, 3} - {leader})
    assigned = DirectoryData(directory(last), [TopicData(topic_id, [PartitionData(0)])])
    cluster.ask(AssignReplicasToDirsRequest(last, cluster.state.image.brokers[last].epoch, [assigned]))
    cluster.beat(last, offline=[directory(last)])
    isr = [BrokerState(broker_id) for broker_id in (leader, other, last)]
    data = AlterPartitionData(
        0, cluster.partition("t").leader_epoch, [], isr, 0, cluster.partition("t").partition_epoch
    )
    epoch = cluster.state.image.brokers[leader].epoch
    answer = cluster.ask(AlterPartitionRequest(leader, epoch, [AlterPartitionTopic(topic_id, [data])]))
    assert answer.topics[0].partitions[0].isr == [leader, other, last]
    cluster.clock.now += 10_000
    cluster.register(leader, directories=2)
    cluster.register(other, directories=2)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (NO_NODE, (last,))
    cluster.register(last, directories=2)
    dead = cluster.partition("t")
    assert (dead.leader, dead.isr, dead.elr, dead.last_known_elr) == (NO_NODE, (), (), (last,))
    for broker_id in (leader, other, last):
        cluster.beat(broker_id)
    back = cluster.partition("t")
    assert (back.leader, back.isr, back.leader_recovery_state) == (last, (last,), RECOVERING)


def test_another_incarnation_waits_for_the_session_to_end(cluster: Cluster) -> None:
    assert cluster.register(1, directories=2).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.clock.now += 9_001
    assert cluster.register(1, directories=2).error_code == 0


def test_nobody_takes_the_id_of_the_active_controllers_own_broker(cluster: Cluster) -> None:
    """A second server with the id of a node that is broker and controller; the node itself is back at once."""
    own = cluster.state.settings.node_id
    assert cluster.register(own).error_code == 0
    cluster.beat(own)
    assert cluster.register(own, directories=7).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.state.sessions.clear()
    assert cluster.register(own, directories=8).error_code == 0


def test_an_incarnation_that_has_the_directories_of_the_last_one_is_back_at_once(cluster: Cluster) -> None:
    assert cluster.register(1).error_code == 0


def test_silent_brokers_are_fenced(cluster: Cluster) -> None:
    cluster.create("t", 1, 3)
    cluster.clock.now += 8_000
    cluster.beat(2)
    cluster.clock.now += 2_000
    for _ in range(5):
        cluster.apply(fence_stale_brokers(cluster.state))
    assert {i for i, broker in cluster.state.image.brokers.items() if not broker.fenced} == {2}
    assert cluster.partition("t").leader == 2


def test_registrations_that_cannot_be(cluster: Cluster) -> None:
    def tried(**changes: Any) -> int:
        request = BrokerRegistrationRequest(
            broker_id=9,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(b"9" * 16),
            features=[Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            log_dirs=[directory(9)],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return int(cluster.ask(request).error_code)

    assert tried(cluster_id="other") == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert [tried(broker_id=broker_id) for broker_id in (-1, -5)] == [ErrorCode.INVALID_REGISTRATION] * 2
    controller = ControllerRegistrationRequest(controller_id=-1, incarnation_id=Uuid(b"9" * 16))
    assert cluster.ask(controller).error_code == ErrorCode.INVALID_REGISTRATION
    assert tried(log_dirs=[]) == ErrorCode.INVALID_REGISTRATION
    assert tried(log_dirs=[Uuid(bytes(15) + b"\x05")]) == ErrorCode.INVALID_REGISTRATION
    assert tried(log_dirs=[directory(9)] * 2) == ErrorCode.INVALID_REGISTRATION
    assert tried(log_dirs=[directory(1)]) == ErrorCode.INVALID_REGISTRATION
    assert tried(features=[]) == ErrorCode.INVALID_REGISTRATION
    assert tried(features=[Feature("metadata.version", 7, 29)]) == ErrorCode.UNSUPPORTED_VERSION
    assert tried(features=[Feature("metadata.version", 7, 30)]) == ErrorCode.UNSUPPORTED_VERSION, "no ELR"
    assert tried() == 0


def test_reassignment_begins_lists_and_can_be_cancelled(cluster: Cluster) -> None:
    cluster.create("t", 1, 1)
    (here,) = cluster.partition("t").replicas
    there = here % 3 + 1

    def move(replicas: list[int] | None) -> int:
        topics = [ReassignableTopic("t", [ReassignablePartition(0, replicas)])]
        answer = cluster.ask(AlterPartitionReassignmentsRequest(1000, True, topics))
        return int(answer.responses[0].partitions[0].error_code)

    assert move([there]) == 0
    moving = cluster.partition("t")
    assert (moving.replicas, moving.adding, moving.removing) == ((there, here), (there,), (here,))
    listed = cluster.ask(ListPartitionReassignmentsRequest(topics=None)).topics
    assert (listed[0].name, listed[0].partitions[0].adding_replicas) == ("t", [there])
    assert move(None) == 0
    assert cluster.partition("t").replicas == (here,)
    assert move(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.create("u", 1, 3)
    swapped = list(reversed(cluster.partition("u").replicas))
    topics = [ReassignableTopic("u", [ReassignablePartition(0, swapped)])]
    cluster.ask(AlterPartitionReassignmentsRequest(1000, True, topics))
    done = cluster.partition("u")
    assert (list(done.replicas), done.adding, done.removing) == (swapped, (), ()), "nothing to wait for"


def test_preferred_leaders_come_back(cluster: Cluster) -> None:
    cluster.create("t", 1, 3)
    preferred = cluster.partition("t").replicas[0]
    cluster.beat(preferred, fence=True)
    cluster.beat(preferred)
    answer = cluster.ask(ElectLeadersRequest(0, None, 1000))
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def grown(cluster: Cluster, name: str, index: int = 0) -> Any:
    """The leader asks for every replica that is alive."""
    p = cluster.partition(name, index)
    brokers = cluster.state.image.brokers
    isr = [BrokerState(r, brokers[r].epoch) for r in p.replicas if r in brokers and brokers[r].active]
    return alter(cluster, name, index, isr=isr)


def alter(cluster: Cluster, name: str, index: int = 0, **changes: Any) -> Any:
    p = cluster.partition(name, index)
    topic_id = cluster.state.image.topics_by_name[name].id
    asked = AlterPartitionData(
        index,
        changes.pop("leader_epoch", p.leader_epoch),
        new_isr_with_epochs=changes.pop("isr"),
        leader_recovery_state=changes.pop("recovery", 0),
        partition_epoch=changes.pop("partition_epoch", p.partition_epoch),
    )
    sender = changes.pop("sender", p.leader)
    epoch = cluster.state.image.brokers[sender].epoch
    answer = cluster.ask(AlterPartitionRequest(sender, epoch, [AlterPartitionTopic(topic_id, [asked])]))
    return answer.topics[0].partitions[0]


def test_a_leader_grows_its_isr_and_reassignments_end(cluster: Cluster) -> None:
    cluster.create("t", 1, 3)
    preferred = cluster.partition("t").replicas[0]
    cluster.beat(preferred, fence=True)
    cluster.beat(preferred)
    assert grown(cluster, "t").error_code == 0
    assert set(cluster.partition("t").isr) == {1, 2, 3}
    cluster.ask(ElectLeadersRequest(0, None, 1000))
    assert cluster.partition("t").leader == preferred
    cluster.create("u", 1, 1)
    (here,) = cluster.partition("u").replicas
    there = here % 3 + 1
    topics = [ReassignableTopic("u", [ReassignablePartition(0, [there])])]
    cluster.ask(AlterPartitionReassignmentsRequest(1000, True, topics))
    assert grown(cluster, "u").error_code == ErrorCode.NEW_LEADER_ELECTED
    moved = cluster.partition("u")
    assert (moved.replicas, moved.isr, moved.leader, moved.adding, moved.removing) == (
        (there,),
        (there,),
        there,
        (),
        (),
    )


def test_isr_proposals_that_are_refused(cluster: Cluster) -> None:
    cluster.create("t", 1, 2)
    p = cluster.partition("t")
    leader, follower = p.replicas
    stranger = ({1, 2, 3} - set(p.replicas)).pop()
    brokers = cluster.state.image.brokers
    both = [BrokerState(leader, brokers[leader].epoch), BrokerState(follower, brokers[follower].epoch)]

    def code(**changes: Any) -> int:
        return int(alter(cluster, "t", **{"isr": both, **changes}).error_code)

    assert code(leader_epoch=9) == ErrorCode.NOT_CONTROLLER
    assert code(partition_epoch=9) == ErrorCode.NOT_CONTROLLER
    assert code(leader_epoch=-1) == ErrorCode.FENCED_LEADER_EPOCH
    assert code(partition_epoch=-1) == ErrorCode.INVALID_UPDATE_VERSION
    assert code(sender=follower) == ErrorCode.INVALID_REQUEST
    assert code(isr=[]) == ErrorCode.INVALID_REQUEST
    assert code(isr=both[1:]) == ErrorCode.INVALID_REQUEST
    assert code(isr=[*both, BrokerState(stranger)]) == ErrorCode.INVALID_REQUEST
    assert code(isr=[both[0], both[0]]) == ErrorCode.INVALID_REQUEST
    assert code(recovery=1) == ErrorCode.INVALID_REQUEST
    assert code(isr=[both[0], BrokerState(follower, 12345)]) == ErrorCode.INELIGIBLE_REPLICA
    cluster.beat(follower, fence=True)
    assert code() == ErrorCode.INELIGIBLE_REPLICA


def test_replicas_move_between_directories_and_die_with_them() -> None:
    cluster = Cluster()
    cluster.join(1, directories=2)
    cluster.create("t", 2, 1)
    topic = cluster.state.image.topics_by_name["t"]
    assert set(cluster.partition("t").directories) == {Uuid(bytes(16))}, "the broker chooses among several"
    parts = [DirectoryData(directory(1, i), [TopicData(topic.id, [PartitionData(i)])]) for i in range(2)]
    strange = DirectoryData(directory(1, 0), [TopicData(Uuid(b"x" * 16), [PartitionData(0)])])
    epoch = cluster.state.image.brokers[1].epoch
    answer = cluster.ask(AssignReplicasToDirsRequest(1, epoch, [*parts, strange]))
    codes = [d.topics[0].partitions[0].error_code for d in answer.directories]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert cluster.partition("t", 1).directories == (directory(1, 1),)
    cluster.beat(1, offline=[directory(1, 1)])
    assert cluster.partition("t", 0).leader == 1
    assert cluster.partition("t", 1).leader == NO_NODE
    assert cluster.state.image.brokers[1].directories == (directory(1, 0),)


class Walk(RuleBasedStateMachine):
    """Brokers come and go in every way while topics are made, moved and removed."""

    brokers = st.integers(1, 4)

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.topics = 0
        self.epochs: dict[tuple[Uuid, int], tuple[int, int]] = {}

    @property
    def image(self) -> MetadataImage:
        return self.cluster.state.image

    @rule(broker=brokers)
    def come_up(self, broker: int) -> None:
        if broker not in self.image.brokers:
            self.cluster.register(broker)
        self.cluster.beat(broker)

    @rule(broker=brokers, clean=st.booleans())
    def restart(self, broker: int, *, clean: bool) -> None:
        known = self.image.brokers.get(broker)
        self.cluster.clock.now += 10_000
        self.cluster.register(broker, previous_epoch=known.epoch if clean and known else -1)

    @rule(broker=brokers, shut_down=st.booleans())
    def go_down(self, broker: int, *, shut_down: bool) -> None:
        if broker in self.image.brokers:
            self.cluster.beat(broker, fence=not shut_down, shut_down=shut_down)

    @rule(broker=brokers)
    def unregister(self, broker: int) -> None:
        self.cluster.ask(UnregisterBrokerRequest(broker))

    @rule(partitions=st.integers(1, 3), replicas=st.integers(1, 3))
    def create(self, partitions: int, replicas: int) -> None:
        self.topics += 1
        self.cluster.create(f"topic-{self.topics}", partitions, replicas)

    @precondition(lambda self: self.image.topics_by_name)
    @rule()
    def delete(self) -> None:
        self.cluster.ask(DeleteTopicsRequest([], [next(iter(self.image.topics_by_name))]), 5)

    @precondition(lambda self: self.image.topics_by_name)
    @rule(replicas=st.none() | st.lists(brokers, min_size=1, max_size=3, unique=True))
    def reassign(self, replicas: list[int] | None) -> None:
        name = next(iter(self.image.topics_by_name))
        topics = [ReassignableTopic(name, [ReassignablePartition(0, replicas)])]
        self.cluster.ask(AlterPartitionReassignmentsRequest(1000, True, topics))

    @rule(kind=st.integers(0, 1))
    def elect(self, kind: int) -> None:
        self.cluster.ask(ElectLeadersRequest(kind, None, 1000))

    @rule()
    def catch_up(self) -> None:
        for tp, _, p in list(self.image.partitions()):
            if p.leader != NO_NODE:
                grown(self.cluster, tp.topic, tp.partition)

    @rule(passed=st.sampled_from([1000, 9001]))
    def time_passes(self, passed: int) -> None:
        self.cluster.clock.now += passed
        for _ in range(5):
            self.cluster.apply(fence_stale_brokers(self.cluster.state))

    @invariant()
    def partitions_make_sense(self) -> None:
        for tp, topic_id, p in self.image.partitions():
            replicas = set(p.replicas)
            assert len(replicas) == len(p.replicas) == len(p.directories), tp
            assert set(p.isr) <= replicas, tp
            assert not set(p.isr) & set(p.elr), tp
            if p.leader != NO_NODE:
                assert p.leader in p.isr, tp
                assert not self.image.brokers[p.leader].fenced, tp
            else:
                assert not any(self.cluster.state.active(r) for r in p.isr), tp
            assert set(p.adding) <= replicas, tp
            assert set(p.removing) <= replicas, tp
            leader_epoch, partition_epoch = self.epochs.get((topic_id, tp.partition), (0, 0))
            assert p.leader_epoch >= leader_epoch, tp
            assert p.partition_epoch >= partition_epoch, tp
            self.epochs[topic_id, tp.partition] = (p.leader_epoch, p.partition_epoch)

    @invariant()
    def every_replay_is_equal(self) -> None:
        assert self.cluster.second == self.image


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
