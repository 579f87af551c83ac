"""Schedules for faults of one directory, of names, bits and clocks, and the planted bug that each of them finds."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.env import logging
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.simulation.composition import Composition
from ottla.simulation.invariants import Violation
from ottla.simulation.loads import GROUP
from ottla.simulation.rare_faults import _places, _put
from ottla.simulation.whole_node import WholeNode
from tests.simulation.data_mutations import DATA_MUTATIONS
from tests.simulation.fault_mutations import FAULT_MUTATIONS
from tests.simulation.test_replica_schedules import _STAGED, Stage


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    while _STAGED:
        _STAGED.pop().close()
    logging._sink = kept


class FaultStage(Stage):
    """A stage whose disks are looked at while it runs."""

    def watch(self, ms: float, step_ms: float = 20.0) -> None:
        for _ in range(int(ms / step_ms)):
            self.run(step_ms)
            for node in self.cluster.whole:
                self.cluster.disks.check(node)

    def coordinator(self, via: WholeNode, *, other_than: WholeNode | None = None) -> WholeNode:
        """Of the group, as soon as a broker names another than that."""
        while self.cluster.world.now_ms < 60_000:
            answers = self.ask(via, FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
            self.run(500)
            named = answers[0].coordinators[0] if answers else None
            if named is not None and not named.error_code and self.node(named.node_id) is not other_than:
                return self.node(named.node_id)
        raise AssertionError("no coordinator")

    def commit(self, coordinator: WholeNode, offset: int) -> bool:
        topic = OffsetCommitRequestTopic(self.name, partitions=[OffsetCommitRequestPartition(0, offset)])
        answers = self.ask(coordinator, OffsetCommitRequest(GROUP, topics=[topic]), 8)
        self.run(500)
        return bool(answers) and not answers[0].topics[0].partitions[0].error_code

    def committed(self, coordinator: WholeNode) -> int:
        topics = [OffsetFetchRequestTopics(self.name, partition_indexes=[0])]
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)], require_stable=True)
        answers = self.ask(coordinator, fetch, 8)
        self.run(500)
        offset: int = answers[0].groups[0].topics[0].partitions[0].committed_offset
        return offset

    def folder(self, node: WholeNode) -> str:
        return self.partition(node).log.log_dir.path

    def send(self, node: WholeNode, count: int, acks: int = -1) -> None:
        """Batches of one record each."""
        for _ in range(count):
            self.cluster.records._number += 1
            value = b"one %d" % self.cluster.records._number
            batch = bytes(build_batch([SimpleRecord(self.cluster.clients.time_ms(), None, value)]))
            self.cluster.clients.spawn(self.cluster.records._send(node.node_id, self.key, acks, batch))

    def ask(self, node: WholeNode, request: Any, version: int | None = None) -> list[Any]:
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await self.cluster.clients.ask(node.node_id, request, version=version))

        self.cluster.clients.spawn(ask())
        return answers


def a_sync_that_fails_once() -> None:
    stage = FaultStage(composition=Composition(flush_ms=100))
    leader = stage.leader
    leader.disk.failing_once.add(stage.folder(leader))
    stage.produce()
    stage.watch(3_000)
    assert not leader.disk.failing_once
    if stage.registration.leader == leader.node_id:
        raise Violation("the leader goes on in a directory whose sync failed")


def a_directory_that_hangs() -> None:
    stage = FaultStage(composition=Composition(flush_ms=100))
    leader = stage.leader
    leader.disk.hanging[stage.folder(leader)] = stage.cluster.world.now_ms + 2_500
    stage.produce()
    stage.watch(4_000)


def a_truncation_below_the_recovery_point() -> None:
    stage = FaultStage(composition=Composition(flush_messages=1, forgetful=True))
    stage.send(stage.leader, 5)
    stage.run(500)
    former, others = stage.leader, stage.followers()
    stage.apart([former], [stage.controller, *others])
    stage.send(former, 5, acks=1)
    stage.watch(5_000)
    assert stage.leader is not former
    stage.heal()
    stage.watch(2_000)
    assert stage.partition(former).log.log_end_offset == stage.partition(stage.leader).log.log_end_offset


def a_bit_flips_on_the_disk_of_a_leader() -> None:
    stage = FaultStage()
    stage.produce()
    stage.run(500)
    leader, (late, _) = stage.leader, stage.followers()
    late.kill()
    stage.run(4_500)
    stage.produce()
    stage.run(500)
    directory = stage.partition(leader).log.directory
    [file] = [file for path, file in leader.disk.files.items() if path.startswith(directory) and path.endswith(".log")]
    low = _places(file)[-1][1]
    _put(file, low, file.data[low] ^ 1)
    late.start()
    stage.run(4_000)
    if late.node_id in stage.registration.isr:
        raise Violation("a follower has taken a damaged batch")
    _put(file, low, file.data[low] ^ 1)
    stage.run(6_000)
    stage.cluster.replicas.whole(late.node_id, stage.key, stage.partition(late))
    assert late.node_id in stage.registration.isr


def a_full_directory_refuses_a_deletion() -> None:
    stage = FaultStage()
    stage.send(stage.leader, 8)
    stage.run(500)
    leader = stage.leader
    leader.disk.full_folders.add(stage.folder(leader))
    stage.cluster.ledger.asked_to_delete[stage.key] = 5
    topic = DeleteRecordsTopic(stage.name, [DeleteRecordsPartition(stage.key[1], 5)])
    answers = stage.ask(leader, DeleteRecordsRequest([topic], 3_000))
    stage.run(4_000)
    result = answers[0].topics[0].partitions[0]
    if not result.error_code:
        stage.cluster.ledger.on_deleted(leader.node_id, stage.key, result.low_watermark)
    stage.cluster.disks.check(leader)
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def a_clean_stop() -> None:
    stage = FaultStage(composition=Composition(forgetful=True))
    stage.produce()
    stage.run(500)
    follower = stage.followers()[0]
    follower.stop()
    stage.watch(3_000)
    assert not follower.up
    follower.start()
    stage.watch(3_000)


def a_directory_that_fails_under_its_leader() -> None:
    stage = FaultStage()
    stage.produce()
    stage.run(500)
    leader = stage.leader
    leader.disk.failing_folders.add(stage.folder(leader))
    stage.produce()
    stage.run(3_000)
    if stage.registration.leader == leader.node_id:
        raise Violation("a broker leads a partition whose directory fails")


def a_clock_jumps_back() -> None:
    stage = FaultStage()
    follower = stage.followers()[0]
    follower.clock.skew_ms -= 600_000
    stage.run(8_000)
    stage.produce()
    stage.run(1_000)
    if follower.node_id not in stage.registration.isr:
        raise Violation("a broker is gone since its clock has jumped")


def a_supervisor_sees_no_bug() -> None:
    stage = FaultStage()
    with stage.cluster.complaints.heard():
        stage.run(3_000)


def a_consumer_reads_from_the_closest_replica() -> None:
    stage = FaultStage(composition=Composition(racks=3))
    stage.cluster.history.start()
    for _ in range(15):
        stage.produce(10)
        stage.run(150)
    stage.run(4_000)
    polled = stage.cluster.history.polled[stage.key]
    stage.cluster.history.judge()
    assert len({poll.broker for poll in polled.polls}) >= 1
    assert polled.position == stage.partition(stage.leader).log.high_watermark


def a_replica_is_moved_while_it_truncates() -> None:
    """A deposed leader copies records that no other replica has; its log is cut and grows past the copy's end."""
    stage = FaultStage(composition=Composition(move_bytes_per_s=100))
    stage.send(stage.leader, 3)
    stage.run(500)
    former = stage.leader
    stage.apart([former], [stage.controller, *stage.followers()])
    stage.send(former, 6, acks=1)
    stage.run(100)
    log = stage.partition(former).log
    other = next(path for path in ("/logs", "/logs-2") if path != log.log_dir.path)
    topic = AlterReplicaLogDirTopic(stage.name, [stage.key[1]])
    stage.ask(former, AlterReplicaLogDirsRequest([AlterReplicaLogDir(other, [topic])]))
    broker = former.process.broker if former.process is not None else None
    assert broker is not None
    for _ in range(2_000):
        stage.run(5)
        futures = list(broker.logs.moves.futures())
        if futures and futures[0].log_end_offset >= 5:
            break
    assert 5 <= futures[0].log_end_offset < log.log_end_offset == 9
    while stage.registration.leader == former.node_id:
        stage.run(50)
    stage.send(stage.leader, 12)
    stage.run(50)
    stage.heal()
    while log.log_dir is stage.partition(former).log.log_dir:
        stage.run(200)
        assert stage.cluster.world.now_ms < 90_000
    stage.cluster.replicas.whole(former.node_id, stage.key, stage.partition(former))


def a_coordinator_is_cut_off() -> None:
    """Clients still reach the coordinator, and no broker does."""
    stage = FaultStage()
    former = stage.coordinator(stage.leader)
    while not stage.commit(former, 1):
        assert stage.cluster.world.now_ms < 30_000
    others = [node for node in stage.cluster.whole if node is not former]
    stage.apart([former], others)
    acknowledged = 2 if stage.commit(former, 2) else 1
    stage.run(4_000)
    coordinator = stage.coordinator(others[-1], other_than=former)
    offset = stage.committed(coordinator)
    if offset < acknowledged:
        raise Violation(f"offset {acknowledged} was acknowledged, and {offset} is committed")


SCHEDULES: dict[str, Callable[[], None]] = {
    "goes_on_after_a_failed_sync": a_sync_that_fails_once,
    "moves_the_recovery_point_before_the_sync": a_directory_that_hangs,
    "lowers_checkpoints_without_a_sync": a_truncation_below_the_recovery_point,
    "does_not_lower_checkpoints_at_a_truncation": a_truncation_below_the_recovery_point,
    "follows_without_a_look_at_crcs": a_bit_flips_on_the_disk_of_a_leader,
    "acknowledges_a_deletion_that_the_disk_refused": a_full_directory_refuses_a_deletion,
    "leaves_files_unsynced_at_a_clean_stop": a_clean_stop,
    "forgets_to_take_a_failed_directory_offline": a_directory_that_fails_under_its_leader,
    "waits_by_the_wall_clock": a_clock_jumps_back,
    "only_logs_a_bug": a_supervisor_sees_no_bug,
    "leaves_out_a_batch_of_a_read": a_consumer_reads_from_the_closest_replica,
    "answers_a_coordinator_before_its_commit": a_coordinator_is_cut_off,
    "compares_a_moved_replica_by_its_end_alone": a_replica_is_moved_while_it_truncates,
}
"""By the bug that the schedule finds."""


@pytest.mark.parametrize("schedule", sorted(set(SCHEDULES.values()), key=lambda schedule: schedule.__name__))
def test_the_schedule_is_survived(schedule: Callable[[], None]) -> None:
    schedule()


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_the_schedule_finds_its_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (FAULT_MUTATIONS | DATA_MUTATIONS)[name](monkeypatch)
    with pytest.raises(Violation):
        SCHEDULES[name]()
