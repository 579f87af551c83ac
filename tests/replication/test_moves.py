"""Moves between log directories of replicated partitions, with virtual time: leaders and followers, reports to the
controller, and the files after faults."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.log.checkpoints import read_offsets
from ottla.metadata.image import PartitionRegistration
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.generated import alter_partition_reassignments_request as reassignment
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.replication.moves import Stage
from ottla.runtime.disk import DiskStorage
from tests.log.partition_files import FailingStorage
from tests.replication.test_replication import Result, started, with_topic
from tests.replication.virtual_cluster import VirtualCluster, VirtualNode

PLACE = TopicPartition("t", 0)


def cluster_of(tmp_path: Path, *, seed: int = 0, **configs: str) -> VirtualCluster:
    cluster = started(tmp_path, log_dirs=2, seed=seed)
    with_topic(cluster, **configs)
    cluster.run_until(lambda: all(directory_of(node) in node.directory_ids.values() for node in cluster.nodes.values()))
    return cluster


def registration(cluster: VirtualCluster) -> PartitionRegistration:
    return cluster.state.image.topics_by_name["t"].partitions[0]


def directory_of(node: VirtualNode) -> Any:
    """The directory of the replica in the controller's image."""
    return registration(node.cluster).directory(node.id)


def place_of(node: VirtualNode) -> str:
    return node.replicas.get("t", 0).log.log_dir.path


def other_of(node: VirtualNode) -> str:
    return next(path for path in node.paths if path != place_of(node))


def move(node: VirtualNode, path: str) -> None:
    node.replicas.moves.begin(node.replicas.get("t", 0), path)


def leads(cluster: VirtualCluster) -> bool:
    """Whether the leader of the current topic has applied its leadership."""
    topic = cluster.state.image.topics_by_name["t"]
    node = cluster.nodes.get(topic.partitions[0].leader)
    partition = node.replicas.by_id.get(topic.id, {}).get(0) if node is not None else None
    return partition is not None and partition.is_leader


def write(cluster: VirtualCluster, count: int) -> None:
    cluster.run_until(lambda: leads(cluster))
    leader = cluster.nodes[cluster.leader("t")]
    results = [Result(leader.produce("t", b"value %d" % number)) for number in range(count)]
    cluster.run_until(lambda: all(result.acked for result in results))


def same_everywhere(cluster: VirtualCluster) -> None:
    cluster.run_until(lambda: cluster.isr("t") == set(cluster.nodes))
    logs = [node.replicas.get("t", 0).log for node in cluster.nodes.values()]
    end = logs[0].log_end_offset
    cluster.run_until(lambda: all(log.high_watermark == end for log in logs))
    assert len({node.bytes_below("t", end) for node in cluster.nodes.values()}) == 1


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_the_controller_knows_the_directory_before_the_replica_is_there(tmp_path: Path, role: str) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    leader = cluster.nodes[cluster.leader("t")]
    node = leader if role == "leader" else next(n for n in cluster.nodes.values() if n is not leader)
    source, target = place_of(node), other_of(node)
    move(node, target)
    known_at = []

    def moved() -> bool:
        known_at.append((directory_of(node) == node.directory_ids[target], place_of(node) == target))
        return place_of(node) == target

    cluster.run_until(moved)
    assert (False, True) not in known_at, "promoted before the controller knew"
    cluster.time.advance(1_000)
    assert directory_of(node) == node.directory_ids[target]
    assert node.assigned[-1].directories[0].id == node.directory_ids[target], "and it was not taken back"
    write(cluster, 5)
    same_everywhere(cluster)
    assert not list(Path(source).glob("t-0"))


def test_a_deposed_leader_that_truncates_while_it_moves(tmp_path: Path) -> None:
    """The copy had caught up with records that were never committed."""
    cluster = cluster_of(tmp_path, min_insync_replicas="2")
    write(cluster, 3)
    former_leader = cluster.nodes[cluster.leader("t")]
    cluster.cut.add(former_leader.id)
    for number in range(3):
        assert Result(former_leader.produce("t", b"lost %d" % number, acks=1)).acked
    target = other_of(former_leader)
    move(former_leader, target)
    cluster.run_until(lambda: _copied(former_leader) == 6)
    [under_way] = former_leader.replicas.moves
    under_way.paused_until_ms = float("inf")
    cluster.run_until(lambda: cluster.leader("t") != former_leader.id)
    new_leader = cluster.nodes[cluster.leader("t")]
    cluster.run_until(lambda: new_leader.replicas.get("t", 0).is_leader)
    results = [Result(new_leader.produce("t", b"kept %d" % number)) for number in range(3)]
    cluster.run_until(lambda: all(result.acked for result in results))
    cluster.cut.clear()
    cluster.run_until(lambda: b"kept 2" in former_leader.bytes_below("t", 6))
    assert _copied(former_leader) == 6, "the end offsets do not tell"
    under_way.paused_until_ms = 0.0
    cluster.run_until(lambda: place_of(former_leader) == target)
    same_everywhere(cluster)
    assert b"lost" not in former_leader.bytes_below("t", 6)


def _copied(node: VirtualNode) -> int:
    future = node.logs.moves.future(PLACE)
    return -1 if future is None else future.log_end_offset


def held_back(node: VirtualNode) -> list[Any]:
    """Hold AssignReplicasToDirs responses back; a call of an element delivers the response."""
    answers: list[Any] = []
    directories = node.replicas.directories
    assert directories is not None
    send = directories._send

    def hold(request: Any, done: Any) -> None:
        send(request, lambda response: answers.append(lambda: done(response)))

    directories._send = hold
    return answers


def assigning(cluster: VirtualCluster, node: VirtualNode) -> list[Any]:
    """A move whose target is recorded by the controller; the answer has not come back."""
    answers = held_back(node)
    target = node.directory_ids[other_of(node)]
    move(node, other_of(node))

    def recorded() -> bool:
        if answers and directory_of(node) != target:
            answers.pop()()  # the response to an earlier assignment
        return bool(answers)

    cluster.run_until(recorded)
    assert directory_of(node) == target
    assert [under_way.stage for under_way in node.replicas.moves] == [Stage.ASSIGNING]
    return answers


@pytest.mark.parametrize("stage", [Stage.COPYING, Stage.ASSIGNING])
def test_a_move_back_ends_it_and_gives_the_assignment_back(tmp_path: Path, stage: Stage) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = cluster.nodes[cluster.leader("t")]
    source, target = place_of(node), other_of(node)
    if stage is Stage.ASSIGNING:
        answers = assigning(cluster, node)
        move(node, source)
        answers.pop()()
        cluster.run_until(lambda: bool(answers))
        answers.pop()()
    else:
        move(node, target)
        move(node, source)
    cluster.time.advance(2_000)
    assert place_of(node) == source
    assert directory_of(node) == node.directory_ids[source]
    assert list(node.replicas.moves) == []
    cluster.time.advance(100_000)
    assert not list(Path(target).glob("t-0*"))


def test_a_target_that_fails_after_it_was_assigned_leaves_the_source_serving(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = cluster.nodes[cluster.leader("t")]
    source = place_of(node)
    answers = assigning(cluster, node)
    node.logs.directory(other_of(node)).fail(OSError(errno.EIO, "injected"))
    answers.pop()()
    cluster.run_until(lambda: bool(answers))
    answers.pop()()
    cluster.run_until(lambda: directory_of(node) == node.directory_ids[source])
    assert place_of(node) == source
    write(cluster, 3)
    same_everywhere(cluster)


def test_a_source_that_fails_after_the_target_was_assigned_is_offline_for_the_controller(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = cluster.nodes[cluster.leader("t")]
    source = place_of(node)
    answers = assigning(cluster, node)
    node.logs.directory(source).fail(OSError(errno.EIO, "injected"))
    answers.pop()()
    cluster.run_until(lambda: bool(answers))
    answers.pop()()
    cluster.run_until(lambda: cluster.leader("t") not in (-1, node.id))
    assert directory_of(node) == node.directory_ids[source]
    assert node.id not in cluster.isr("t")


@pytest.mark.parametrize("when", [Stage.COPYING, Stage.ASSIGNING])
def test_a_move_goes_on_after_a_kill(tmp_path: Path, when: Stage) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = next(n for n in cluster.nodes.values() if n.id != cluster.leader("t"))
    target = other_of(node)
    if when is Stage.ASSIGNING:
        assigning(cluster, node)
    else:
        move(node, target)
        node.replicas.moves.advance(200)
        assert 0 < _copied(node) < 20
    node.crash()
    write(cluster, 3)
    node.start()
    cluster.run_until(lambda: "t" in node.replicas.by_name and place_of(node) == target)
    cluster.run_until(lambda: directory_of(node) == node.directory_ids[target])
    same_everywhere(cluster)


def test_a_topic_that_is_deleted_and_made_anew_during_a_move(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = cluster.nodes[cluster.leader("t")]
    move(node, other_of(node))
    node.replicas.moves.advance(200)
    cluster.submit(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1))
    with_topic(cluster)
    cluster.run_until(lambda: node.replicas.get("t", 0).topic_id == cluster.state.image.topics_by_name["t"].id)
    assert list(node.replicas.moves) == []
    assert node.logs.moves.future(PLACE) is None
    write(cluster, 2)
    same_everywhere(cluster)
    cluster.time.advance(100_000)
    folders = [folder.name for path in node.paths for folder in Path(path).glob("t-0*")]
    assert folders == ["t-0"]


def test_made_anew_while_the_node_is_down_the_copy_of_the_old_topic_is_put_aside(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = next(n for n in cluster.nodes.values() if n.id != cluster.leader("t"))
    move(node, other_of(node))
    node.replicas.moves.advance(200)
    node.crash()
    cluster.submit(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1))
    cluster.create_topic("t")
    cluster.run_until(lambda: cluster.leader("t") not in (-1, node.id))
    node.start()
    cluster.run_until(lambda: "t" in node.replicas.by_name)
    assert list(node.replicas.moves) == []
    write(cluster, 2)
    same_everywhere(cluster)


def test_a_full_target_delays_the_move_and_a_long_name_is_refused(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = cluster.nodes[cluster.leader("t")]
    target = other_of(node)
    storage = FailingStorage()
    node.logs.directory(target).storage = storage
    move(node, target)
    storage.failure = lambda path: path.startswith(target) and path.endswith(".log")
    cluster.time.advance(5_000)
    assert [under_way.paused for under_way in node.replicas.moves] == [True]
    described = next(directory for directory in node.logs.describe() if directory.path == target)
    assert [(row.is_future, row.offset_lag) for row in described.replicas] == [(True, 20)]
    write(cluster, 3)
    storage.failure = None
    cluster.run_until(lambda: place_of(node) == target)
    same_everywhere(cluster)
    partition = node.replicas.get("t", 0)
    partition.topic_partition = TopicPartition("t" * 240, 0)
    with pytest.raises(KafkaError) as refused:
        node.replicas.moves.begin(partition, other_of(node))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_log_in_another_directory_than_an_offline_one_of_the_metadata_is_not_served(tmp_path: Path) -> None:
    """The target's last sync failed, its rename stayed; the source went on and is broken at the next start."""
    cluster = cluster_of(tmp_path)
    write(cluster, 5)
    node = next(n for n in cluster.nodes.values() if n.id != cluster.leader("t"))
    source, target = place_of(node), other_of(node)
    node.crash()
    shutil.copytree(f"{source}/t-0", f"{target}/t-0")
    node.storage = BrokenAt(f"{source}/t-0")
    node.start()
    cluster.time.advance(2_000)
    assert [d.path for d in node.logs.directories if d.offline] == [source]
    assert "t" not in node.replicas.by_name
    node.crash()
    node.storage = BrokenAt("")
    node.start()
    cluster.run_until(lambda: "t" in node.replicas.by_name)
    assert place_of(node) == source
    same_everywhere(cluster)


class BrokenAt(FailingStorage):
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def list_dir(self, path: str) -> Any:
        if self.place and path.startswith(self.place):
            raise OSError(errno.EIO, "injected")
        return super().list_dir(path)


def test_a_new_follower_of_a_log_that_starts_inside_of_a_batch(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    node = next(n for n in cluster.nodes.values() if n.id != cluster.leader("t"))
    node.crash()
    leader = cluster.nodes[cluster.leader("t")]
    partition = leader.replicas.get("t", 0)
    records = [SimpleRecord(cluster.time.time_ms(), None, b"%d" % number) for number in range(5)]
    partition.append_as_leader(bytearray(build_batch(records)), now_ms=cluster.time.time_ms(), required_acks=1)
    cluster.run_until(lambda: partition.high_watermark == 5, 120_000)
    partition.delete_records_before(3)
    node.start()
    cluster.run_until(lambda: cluster.isr("t") == set(cluster.nodes))
    log = node.replicas.get("t", 0).log
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)


@pytest.mark.parametrize("seed", range(6))
def test_random_moves_and_faults_lose_nothing_that_was_acked(tmp_path: Path, seed: int) -> None:
    cluster = cluster_of(tmp_path, seed=seed, min_insync_replicas="2")
    dice = cluster.random
    sent: list[tuple[bytes, Result]] = []
    moves = 0
    for round_number in range(60):
        what = dice.random()
        up = [node for node in cluster.nodes.values() if not node.down]
        if what < 0.35:
            node = dice.choice(up)
            if "t" in node.replicas.by_name:
                move(node, dice.choice(node.paths))
                moves += 1
        elif what < 0.45 and len(up) == 3 and not cluster.cut:
            dice.choice(up).crash()
        elif what < 0.55 and len(up) < 3:
            next(node for node in cluster.nodes.values() if node.down).start()
        elif what < 0.65 and not cluster.cut and len(up) == 3:
            cluster.cut.add(dice.choice(up).id)
        elif what < 0.75:
            cluster.cut.clear()
        for node in cluster.nodes.values():
            if not node.down and "t" in node.replicas.by_name and node.replicas.get("t", 0).is_leader:
                for acks in (-1, 1):
                    value = b"%d-%d-%d" % (round_number, node.id, acks)
                    sent.append((value, Result(node.produce("t", value, acks=acks, timeout_ms=5_000))))
        cluster.time.advance(dice.choice([5, 30, 300, 3_000]))
    cluster.cut.clear()
    for node in cluster.nodes.values():
        if node.down:
            node.start()
    cluster.run_until(lambda: cluster.leader("t") >= 0 and cluster.isr("t") == {1, 2, 3}, 240_000)
    cluster.run_until(lambda: all(not list(node.replicas.moves) for node in cluster.nodes.values()))
    write(cluster, 1)
    same_everywhere(cluster)
    content = cluster.nodes[1].bytes_below("t", cluster.nodes[1].replicas.get("t", 0).log.log_end_offset)
    acked = [value for value, result in sent if result.acked and value.endswith(b"--1")]
    assert [value for value in acked if value not in content] == []
    assert moves > 5
    assert len(acked) > 5
    for node in cluster.nodes.values():
        cluster.run_until(lambda node=node: directory_of(node) == node.directory_ids[place_of(node)])


def test_a_reassignment_takes_the_replica_away_during_a_move(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 20)
    node = next(n for n in cluster.nodes.values() if n.id != cluster.leader("t"))
    move(node, other_of(node))
    node.replicas.moves.advance(200)
    stay = [n for n in cluster.nodes if n != node.id]
    topic = reassignment.ReassignableTopic("t", [reassignment.ReassignablePartition(0, stay)])
    cluster.submit(reassignment.AlterPartitionReassignmentsRequest(topics=[topic]))
    cluster.run_until(lambda: "t" not in node.replicas.by_name)
    assert list(node.replicas.moves) == []
    cluster.time.advance(100_000)
    assert [folder.name for path in node.paths for folder in Path(path).glob("t-0*")] == []
    for path in node.paths:
        assert PLACE not in read_offsets(DiskStorage(), f"{path}/recovery-point-offset-checkpoint")
    write(cluster, 2)


@pytest.mark.parametrize("failing", ["source", "target"])
def test_after_a_move_only_the_new_directory_counts(tmp_path: Path, failing: str) -> None:
    cluster = cluster_of(tmp_path)
    write(cluster, 5)
    node = cluster.nodes[cluster.leader("t")]
    source, target = place_of(node), other_of(node)
    move(node, target)
    cluster.run_until(lambda: place_of(node) == target)
    node.logs.directory(source if failing == "source" else target).fail(OSError(errno.EIO, "injected"))
    cluster.time.advance(5_000)
    assert (cluster.leader("t") == node.id) == (failing == "source")
    assert (node.id in cluster.isr("t")) == (failing == "source")
    write(cluster, 2)


def test_a_follower_whose_directory_has_failed_holds_no_acknowledgement_back(tmp_path: Path) -> None:
    """Its broker is alive and was caught up a moment ago; the controller took it out of the ISR, and it fetches no more."""
    cluster = cluster_of(tmp_path, min_insync_replicas="2")
    leader = cluster.nodes[cluster.leader("t")]
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    write(cluster, 3)
    follower.logs.directory(place_of(follower)).fail(OSError(errno.EIO, "injected"))
    result = Result(leader.produce("t", b"x", timeout_ms=120_000))
    cluster.run_until(lambda: result.acked, 5_000)
    assert cluster.isr("t") == {1, 2, 3} - {follower.id}
