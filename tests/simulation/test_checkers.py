"""Checkers that called correct behaviour a violation: they accept the behaviour now, and still find the bug behind the check."""

from __future__ import annotations

import io
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from ottla.env import logging
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.replay import replay_all
from ottla.model.errors import ErrorCode
from ottla.model.ids import Uuid
from ottla.replication.partition import Partition
from ottla.simulation.composition import Composition
from ottla.simulation.faulty_disk import FaultyDisk
from ottla.simulation.group_ledger import GroupLedger
from ottla.simulation.invariants import Violation
from tests.simulation.test_fault_schedules import FaultStage
from tests.simulation.test_replica_schedules import _STAGED


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    kept = logging._sink
    logging.configure(io.StringIO(), level="error")
    yield
    while _STAGED:
        _STAGED.pop().close()
    logging._sink = kept


# A group without members and offsets is deleted, and its namesake begins with generation 1 (seed 304)


def test_a_deleted_group_gives_its_partitions_again_in_the_same_generation() -> None:
    ledger, key = GroupLedger("g"), (Uuid(bytes(16)), 0)
    ledger.synced("a", 1, [key], 10.0)
    ledger.synced("a", 2, [key], 20.0)
    ledger.in_life(1)
    ledger.synced("b", 1, [key], 30.0)
    ledger.beat("b", 1, 40.0)


def test_a_generation_gives_a_partition_once() -> None:
    ledger, key = GroupLedger("g"), (Uuid(bytes(16)), 0)
    ledger.in_life(1)
    ledger.synced("a", 1, [key], 10.0)
    ledger.in_life(1)
    with pytest.raises(Violation, match="generation 1 gives partition 0 to a and b"):
        ledger.synced("b", 1, [key], 20.0)


# A leader commits and acknowledges, and its directory fails in the same event (seed 372)


def _fail_a_leader(stage: FaultStage, *, commits: bool) -> None:
    stage.produce()
    stage.run(500)
    leader = stage.leader
    (follower,) = set(stage.registration.replicas) - {leader.node_id}
    stage.apart([stage.node(follower)], [leader])
    stage.apart([stage.controller], [leader])  # which knows nothing of the ISR below
    stage.produce()
    stage.run(200)
    assert leader.replicas is not None
    topic_id, index = stage.key
    image, delta = deepcopy(leader.replicas.context.image), MetadataDelta()
    isr = [leader.node_id] if commits else list(stage.registration.isr)
    replay_all(image, delta, [PartitionChangeRecord(index, topic_id, isr=isr)])

    def apply() -> None:
        assert leader.replicas is not None
        leader.replicas.on_metadata(delta, image)
        stage.partition(leader).log.log_dir.fail(OSError("injected"))

    leader.when_awake(apply)
    stage.run(200)


def test_what_a_leader_commits_before_its_directory_fails_counts() -> None:
    stage = FaultStage(composition=Composition(replicas=2))
    _fail_a_leader(stage, commits=True)
    assert len(stage.cluster.records.acked) == 10


def test_an_acknowledgement_of_a_failed_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Partition._commit_state

    def commit_state(self: Any, offset: int) -> ErrorCode | None:
        return ErrorCode.NONE if self.log.log_dir.offline else original(self, offset)

    monkeypatch.setattr(Partition, "_commit_state", commit_state)
    with pytest.raises(Violation, match="acknowledged at offset"):
        _fail_a_leader(FaultStage(composition=Composition(replicas=2)), commits=False)


# A directory fails at a start, and the node starts again: until the logs are loaded, the old marker is right (seed 392)


def _start_twice() -> None:
    stage = FaultStage(composition=Composition(forgetful=True))
    stage.produce()
    stage.run(500)
    follower = stage.followers()[0]
    follower.stop()
    stage.watch(3_000)
    assert not follower.up
    follower.disk.failing_folders.update(stage.cluster.shape.composition.folders)
    follower.start()
    stage.watch(300, step_ms=5)
    follower.kill(power=False)
    follower.disk.heal()
    follower.start()
    stage.watch(300, step_ms=5)


def test_a_node_that_has_not_loaded_its_logs_may_be_marked_as_clean() -> None:
    _start_twice()


def test_a_marker_that_may_come_back_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = FaultyDisk.sync_dir

    def sync_dir(self: Any, path: str) -> None:
        if path.count("/") > 1:
            original(self, path)

    monkeypatch.setattr(FaultyDisk, "sync_dir", sync_dir)
    with pytest.raises(Violation, match="a power cut may mark"):
        _start_twice()
