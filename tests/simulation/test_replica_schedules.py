"""Adversarial schedules for brokers with partitions, and the bugs that they are there to find."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from ottla.controller import alter_partition, brokers
from ottla.env import logging
from ottla.log import log_flush, segment_recovery
from ottla.log.epoch_cache import EpochCache
from ottla.log.partition_log import PartitionLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.metadata.replay import replay_all
from ottla.model.errors import KafkaError
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.replication import context, leader_state
from ottla.replication.fetch_session import Key
from ottla.replication.partition import Partition
from ottla.simulation.cluster import ClusterShape, SimulatedCluster
from ottla.simulation.composition import PLAIN, Composition
from ottla.simulation.invariants import Violation
from ottla.simulation.whole_node import WholeNode
from ottla.simulation.world import World
from tests.simulation.replica_mutations import REPLICA_MUTATIONS


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    while _STAGED:
        _STAGED.pop().close()
    logging._sink = kept


_STAGED: list[SimulatedCluster] = []
"""The clusters of this test, which are closed after it."""


class Stage:
    """One controller, three brokers, one partition; no admin and no producer but the schedule."""

    def __init__(self, seed: int = 1, composition: Composition = PLAIN) -> None:
        shape = ClusterShape(voters=1, observers=3, partitions=True, composition=composition)
        self.cluster = SimulatedCluster(World(seed), shape)
        _STAGED.append(self.cluster)
        for node in self.cluster.whole:
            node.start()
        self.cluster.workload.start()
        self.controller = self.cluster.whole[0]
        self.run(50)
        publisher = self.controller.publisher
        assert publisher is not None
        while not publisher.image.topics_by_id:
            self.run(50)
            assert self.cluster.world.now_ms < 20_000
        self.cluster.workload.ask = lambda *_: None  # type: ignore[method-assign]  # one topic is enough
        self.key: Key = (next(iter(publisher.image.topics_by_id)), 0)
        self.run(1_000)

    def run(self, ms: float) -> None:
        self.cluster.run(ms)

    @property
    def name(self) -> str:
        assert self.controller.publisher is not None
        return self.controller.publisher.image.topics_by_id[self.key[0]].name

    @property
    def registration(self) -> Any:
        assert self.controller.publisher is not None
        return self.controller.publisher.image.topics_by_id[self.key[0]].partitions[self.key[1]]

    def node(self, node_id: int) -> WholeNode:
        return self.cluster.whole[node_id - 1]

    @property
    def leader(self) -> WholeNode:
        return self.node(self.registration.leader)

    def followers(self) -> list[WholeNode]:
        return [node for node in self.cluster.whole[1:] if node is not self.leader]

    def partition(self, node: WholeNode) -> Partition:
        assert node.replicas is not None
        return node.replicas.by_id[self.key[0]][self.key[1]]

    def produce(self, count: int = 5, acks: int = -1) -> None:
        for _ in range(count):
            self.cluster.records.send(self.leader.node_id, self.key, acks)

    def delete_records(self, before: int) -> None:
        self.cluster.ledger.asked_to_delete[self.key] = before
        topic = DeleteRecordsTopic(self.name, [DeleteRecordsPartition(self.key[1], before)])
        request = DeleteRecordsRequest([topic], 3_000)
        self.cluster.clients.spawn(self.cluster.clients.ask(self.leader.node_id, request))

    def apart(self, *groups: list[WholeNode]) -> None:
        """No message between nodes of different groups."""
        self.cluster.network.broken |= {
            (a.node_id, b.node_id) for one in groups for other in groups if one is not other for a in one for b in other
        }

    def heal(self) -> None:
        self.cluster.network.broken.clear()

    def lose_everything(self, node: WholeNode) -> None:
        """The power goes before anything of its partitions was synced; its directory keeps its name."""
        node.kill(power=False)
        for path in [path for path in node.disk.files if path.startswith("/logs/") and "meta.properties" not in path]:
            del node.disk.files[path]
        self.cluster.lost(node.node_id, False)
        node.start()


def a_dead_incarnation_does_not_join_the_isr() -> None:
    """A follower catches up, its leader proposes it, it loses its disk meanwhile: the proposal comes too late."""
    stage = Stage()
    stage.produce()
    stage.run(500)
    leader = stage.leader
    lost, other = stage.followers()
    stage.apart([lost], [leader, other])
    stage.produce()
    stage.run(5_000)
    assert set(stage.registration.isr) == {leader.node_id, other.node_id}
    stage.heal()
    for _ in range(500):
        stage.cluster.network.clogged[leader.node_id, stage.controller.node_id] = stage.cluster.world.now_ms + 1_800
        stage.run(5)
        state = stage.partition(leader).leader_state
        if state is not None and state.pending is not None:
            break
    assert state is not None
    assert state.pending is not None, "the leader has not proposed it"
    stage.lose_everything(lost)
    stage.apart([lost], [leader, other])
    stage.run(2_500)
    leader.kill()
    other.kill()
    stage.run(6_000)
    if stage.registration.leader == lost.node_id:
        raise Violation("a broker that lost its disk leads")


def a_broker_without_its_disk_does_not_lead() -> None:
    """The last one in sync comes back from a power cut with nothing: it must not be called clean (KIP-966)."""
    stage = Stage()
    stage.produce()
    stage.run(500)
    first, second = stage.followers()
    for node in (first, second):
        node.kill()
        stage.run(4_500)
    stage.leader.kill()
    stage.run(4_500)
    stage.lose_everything(second)
    stage.run(6_000)


def a_deposed_leader_commits_nothing() -> None:
    """It is cut off with one follower and goes on; what it wrote alone is undone, what was acknowledged stays."""
    stage = Stage()
    stage.produce()
    stage.run(500)
    old = stage.leader
    stage.apart([old], [node for node in stage.cluster.whole if node is not old])
    stage.produce(4)
    stage.run(5_000)
    assert stage.leader is not old
    stage.produce(6)
    stage.run(500)
    stage.heal()
    stage.run(6_000)
    stage.cluster.judge()


def what_is_called_flushed_is_on_disk() -> None:
    """A power cut leaves nothing of a follower's logs but what was synced: recovery finds the rest again."""
    stage = Stage()
    for _ in range(30):
        stage.produce(4)
        stage.run(100)
    stage.run(4_000)
    node = stage.followers()[0]
    assert stage.partition(node).log.recovery_point > 0
    node.kill(power=False)
    for path, file in node.disk.files.items():
        if path.startswith("/logs/") and path.endswith(".log"):
            file.data[len(file.synced) :] = bytes(len(file.data) - len(file.synced))
    stage.cluster.lost(node.node_id, False)
    node.start()
    stage.run(6_000)
    stage.cluster.judge()


def damage_is_seen_when_a_log_is_recovered() -> None:
    """The last record of a killed follower has a byte that is not what it was, in what was never synced."""
    stage = Stage()
    stage.produce(10)
    stage.run(1_000)
    node = stage.followers()[0]
    node.kill(power=False)
    path = max(p for p in node.disk.files if p.startswith(f"/logs/{stage.name}-0/") and p.endswith(".log"))
    file = node.disk.files[path]
    assert len(file.synced) < len(file.data)
    file.data[-1] ^= 1
    stage.cluster.lost(node.node_id, False)
    node.start()
    stage.run(6_000)
    stage.cluster.judge()


def only_who_has_everything_joins_the_isr() -> None:
    """A follower that missed records asks again and gets no answer: asking alone lets nobody in."""
    stage = Stage()
    stage.produce()
    stage.run(500)
    leader = stage.leader
    behind, other = stage.followers()
    stage.apart([behind], [leader, other])
    stage.produce()
    stage.run(5_000)
    stage.heal()
    state = stage.partition(leader).leader_state
    assert state is not None
    for _ in range(50_000):
        if state.followers[behind.node_id].log_end_offset >= 0:
            break
        stage.run(0.1)
    stage.cluster.network.broken.add((leader.node_id, behind.node_id))  # the answer to its fetch is under way
    for _ in range(300):
        stage.run(10)
        if behind.node_id in stage.registration.isr:
            break
    leader.kill()
    other.kill()
    stage.run(6_000)


def a_leader_without_records_is_a_leader_too() -> None:
    """DeleteRecords took every committed record before this leader was elected: there is nothing to compare."""
    stage = Stage()
    stage.produce()
    stage.run(500)
    end = stage.partition(stage.leader).log.high_watermark
    assert end
    stage.delete_records(end - 1)
    stage.run(2_000)
    stage.leader.kill()
    stage.run(4_500)
    stage.delete_records(end)
    stage.run(2_000)
    stage.leader.kill()
    stage.run(4_500)
    assert stage.partition(stage.leader).log.log_start_offset == end
    assert len(stage.cluster.replicas.truths[stage.key].leaders) == 3


def a_removed_leader_has_committed_its_last_records() -> None:
    """One event brings the ISR without the silent follower, which commits what waits, and the end of the topic."""
    stage = Stage(composition=Composition(replicas=2))
    stage.produce()
    stage.run(500)
    leader, acknowledged = stage.leader, len(stage.cluster.records.acked)
    (follower,) = set(stage.registration.replicas) - {leader.node_id}
    stage.apart([stage.node(follower)], [leader])
    stage.produce()
    stage.run(200)
    assert len(stage.cluster.records.acked) == acknowledged
    assert leader.replicas is not None
    topic_id, index = stage.key
    image = deepcopy(leader.replicas.context.image)
    changes = [PartitionChangeRecord(index, topic_id, isr=[leader.node_id]), RemoveTopicRecord(topic_id)]

    def apply() -> None:
        for record in changes:
            delta = MetadataDelta()
            replay_all(image, delta, [record])
            assert leader.replicas is not None
            leader.replicas.on_metadata(delta, image)
        leader.touched = True

    stage.cluster.world.call_later(0, apply)
    stage.run(200)
    assert stage.cluster.replicas.exists(stage.key)
    assert len(stage.cluster.records.acked) == acknowledged + 5


SCHEDULES: dict[str, Callable[[], None]] = {
    "a_dead_incarnation_does_not_join_the_isr": a_dead_incarnation_does_not_join_the_isr,
    "a_broker_without_its_disk_does_not_lead": a_broker_without_its_disk_does_not_lead,
    "a_deposed_leader_commits_nothing": a_deposed_leader_commits_nothing,
    "what_is_called_flushed_is_on_disk": what_is_called_flushed_is_on_disk,
    "damage_is_seen_when_a_log_is_recovered": damage_is_seen_when_a_log_is_recovered,
    "only_who_has_everything_joins_the_isr": only_who_has_everything_joins_the_isr,
    "a_leader_without_records_is_a_leader_too": a_leader_without_records_is_a_leader_too,
    "a_removed_leader_has_committed_its_last_records": a_removed_leader_has_committed_its_last_records,
}


def _no_broker_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(alter_partition, "_eligible", lambda state, member: member.broker_id in state.image.brokers)
    patch.setattr(context.ReplicaContext, "eligible", lambda *_: True)


def _every_stop_is_clean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brokers, "_cleanup_of_old_incarnation", lambda *_: [])


def _forgets_to_sync(patch: pytest.MonkeyPatch) -> None:
    """The recovery point runs ahead of the disk, so that recovery trusts what was never synced."""
    patch.setattr(log_flush.FlushPlan, "sync", lambda _: None)


class _AnyCrc(int):
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def _does_not_look_at_crcs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment_recovery, "crc32c", lambda *_: _AnyCrc())


def _takes_anybody(patch: pytest.MonkeyPatch) -> None:
    def expand(self: Any, follower: Any) -> None:
        if self.pending is None and follower.id not in self._partition.isr:
            self._propose((*self._partition.isr, follower.id))

    patch.setattr(leader_state.LeaderState, "maybe_expand", expand)


def _forgets_epochs_before_the_start(patch: pytest.MonkeyPatch) -> None:
    """The epoch in force at the new start of the log is lost, while a record of it is still there."""

    def truncate_from_start(self: Any, start_offset: int) -> bool:
        return bool(self._note(self._entries.replace([e for e in self.entries if e[1] >= start_offset])))

    patch.setattr(EpochCache, "truncate_from_start", truncate_from_start)


def _deletes_one_record_more(patch: pytest.MonkeyPatch) -> None:
    original = PartitionLog.advance_log_start_offset
    patch.setattr(
        PartitionLog,
        "advance_log_start_offset",
        lambda self, offset: original(self, min(offset + 1, self.high_watermark)),
    )


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a_dead_incarnation_does_not_join_the_isr": _no_broker_epochs,
    "a_broker_without_its_disk_does_not_lead": _every_stop_is_clean,
    "a_deposed_leader_commits_nothing": REPLICA_MUTATIONS["does_not_truncate"],
    "what_is_called_flushed_is_on_disk": _forgets_to_sync,
    "damage_is_seen_when_a_log_is_recovered": _does_not_look_at_crcs,
    "only_who_has_everything_joins_the_isr": _takes_anybody,
    "a_leader_without_records_is_a_leader_too": _forgets_epochs_before_the_start,
}


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_the_schedule_is_survived(name: str) -> None:
    SCHEDULES[name]()


@pytest.mark.parametrize("name", sorted(BUGS))
def test_the_schedule_finds_its_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    with pytest.raises((Violation, KafkaError, struct.error)):
        SCHEDULES[name]()


def test_more_than_was_asked_for_may_not_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when no committed record is left to compare."""
    _deletes_one_record_more(monkeypatch)
    with pytest.raises(Violation, match="no client asked to delete so many records"):
        a_leader_without_records_is_a_leader_too()
