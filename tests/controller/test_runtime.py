"""The controller at work: order, commit, group commit, publishing, failure, restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.controller.node import CLUSTER_ID, Node, node_properties, started
from tests.controller.own_node import broker_registration
from tests.support.images import broker_config

from ottla.controller.state import ControllerRequestContext
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_NODE
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.protocol.primitives import Message
from ottla.raft.errors import MetadataLogError

V7 = ControllerRequestContext(version=7)


class Later:
    """Blocking work that waits until the test lets it go."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[OSError | None], None]]] = []

    def __call__(self, work: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        self.waiting.append((work, done))

    def go(self, error: OSError | None = None) -> None:
        work, done = self.waiting.pop(0)
        if error is None:
            work()
        done(error)


def create(name: str, partitions: int = 1) -> Message:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1)])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return started(tmp_path / "data")


def test_a_new_cluster_has_its_features_and_its_broker(node: Node) -> None:
    assert node.image.metadata_version == 30
    assert node.image.features["transaction.version"] == 2
    assert node.image.elr_enabled
    assert node.image.brokers[1].active
    assert node.image.controllers[1].listeners["CONTROLLER"].port == 9093
    assert broker_config(node.image, 1) == {"min.insync.replicas": "1"}
    assert node.image == node.state.image


def test_answers_and_publishing_wait_for_the_disk(node: Node) -> None:
    node.runtime.driver._blocking = later = Later()
    first = node.runtime.submit(create("a"), V7)
    assert not first.done()
    assert "a" in node.state.image.topics_by_name
    assert "a" not in node.image.topics_by_name
    later.go()
    assert first.done()
    assert "a" in node.image.topics_by_name


def test_what_arrives_during_a_flush_shares_the_next(node: Node) -> None:
    node.runtime.driver._blocking = later = Later()
    answers = [node.runtime.submit(create(name), V7) for name in "abcde"]
    assert len(later.waiting) == 1
    later.go()
    assert [answer.done() for answer in answers] == [True, False, False, False, False]
    assert len(later.waiting) == 1
    later.go()
    assert all(answer.done() for answer in answers)
    assert not later.waiting


def test_decisions_see_what_is_not_committed_yet(node: Node) -> None:
    node.runtime.driver._blocking = later = Later()
    node.runtime.submit(create("a"), V7)
    again = node.runtime.submit(create("a"), V7)
    assert not again.done(), "a refusal that rests on uncommitted records waits for them"
    later.go()
    assert again.result.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_read_is_answered_at_once_when_nothing_is_pending(node: Node) -> None:
    node.runtime.driver._blocking = Later()
    read = node.runtime.submit(ListPartitionReassignmentsRequest(topics=None), ControllerRequestContext(version=0))
    assert read.done()


def test_a_heartbeat_does_not_wait_for_the_records_of_others(node: Node) -> None:
    """The disk takes its time and 800 requests wait for it: the broker is heard and answered all the same."""
    node.runtime.driver._blocking = later = Later()
    waiting = [node.runtime.submit(create(f"t{i}"), V7) for i in range(800)]
    for _ in range(10):
        answer = node.heartbeat()
        assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (0, False, True)
    assert not any(request.done() for request in waiting)
    while later.waiting:
        later.go()
    assert all(request.done() for request in waiting)


def test_a_heartbeat_waits_for_the_records_of_its_own_broker(node: Node) -> None:
    """Unfenced is what is committed, never what may be undone."""
    node.runtime.fence(1, node.broker_epoch)
    node.runtime.driver._blocking = later = Later()
    request = BrokerHeartbeatRequest(1, node.broker_epoch, node.runtime.publisher.offset)
    beats = [node.runtime.submit(request, ControllerRequestContext(version=2)) for _ in range(2)]
    assert [beat.done() for beat in beats] == [False, False]
    assert node.image.brokers[1].fenced
    while later.waiting:
        later.go()
    assert [beat.result.is_fenced for beat in beats] == [False, False]
    assert not node.image.brokers[1].fenced


def test_the_next_incarnation_of_a_broker_that_is_gone_registers_at_once(node: Node) -> None:
    """Also with another set of log directories: one had failed, and is there again after the restart."""

    def again() -> int:
        request = broker_registration(
            node.config, cluster_id=CLUSTER_ID, incarnation_id=node.state.new_uuid(), host="127.0.0.1",
            directories=[node.state.new_uuid()], previous_broker_epoch=-1,
        )  # fmt: skip
        return int(node.submit(request, 4).error_code)

    assert again() == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    node.runtime.fence(1, node.broker_epoch)
    assert again() == 0


def test_a_failing_disk_refuses_everybody_and_says_so(node: Node) -> None:
    failures: list[OSError] = []
    node.runtime.driver._blocking = later = Later()
    node.runtime._on_failure = failures.append
    waiting = [node.runtime.submit(create(name), V7) for name in "ab"]
    later.go(OSError(28, "No space left on device"))
    late = node.runtime.submit(create("c"), V7)
    for answer in [*waiting, late]:
        assert isinstance(answer.exception, KafkaError)
        assert answer.exception.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert failures
    assert not node.image.topics_by_name


def test_a_restart_finds_everything(tmp_path: Path) -> None:
    node = started(tmp_path / "data")
    for name in "abc":
        node.submit(create(name, 3), 7)
    node.submit(DeleteTopicsRequest([], ["b"]), 5)
    before = node.image
    epoch = node.shut_down()
    again = Node(tmp_path / "data").start()
    assert set(again.image.topics_by_name) == {"a", "c"}
    assert again.image.topics_by_id.keys() == before.topics_by_id.keys()
    assert {p.leader for _, _, p in again.image.partitions()} == {NO_NODE}
    again.join(epoch)
    assert {(p.leader, p.isr, p.elr, p.leader_epoch) for _, _, p in again.image.partitions()} == {(1, (1,), (), 2)}
    assert {p.leader_recovery_state for _, _, p in again.image.partitions()} == {0}


def test_a_kill_bumps_the_leader_epoch_of_every_partition(tmp_path: Path) -> None:
    node = started(tmp_path / "data")
    node.submit(create("a", 2), 7)
    node.kill()
    again = Node(tmp_path / "data").start().join()
    assert {(p.leader, p.isr, p.leader_epoch) for _, _, p in again.image.partitions()} == {(1, (1,), 2)}
    assert {p.leader_recovery_state for _, _, p in again.image.partitions()} == {1}


def test_snapshot_and_log_give_the_same_image_as_the_log(tmp_path: Path) -> None:
    properties = {
        **node_properties(tmp_path / "data"),
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "6000",
        "internal.metadata.log.segment.bytes": "3000",
    }
    node = Node(tmp_path / "data", properties)
    node.format()
    node.start().join()
    for i in range(40):
        node.submit(create(f"topic-{i}", 2), 7)
        if i % 3 == 0:
            node.submit(DeleteTopicsRequest([], [f"topic-{i}"]), 5)
    assert len(node.raft.snapshots.ids) >= 1
    assert node.raft.log.start_offset > 0
    image: MetadataImage = node.image
    node.kill()
    again = Node(tmp_path / "data", properties).start()
    assert again.image == image
    assert again.state.image == image


def test_subscribers_hear_of_commits_in_order(node: Node) -> None:
    heard: list[Any] = []
    node.runtime.publisher.subscribe(
        lambda delta, image: heard.append(sorted(image.topics_by_id[i].name for i in delta.topics_created))
    )
    for name in "abc":
        node.submit(create(name), 7)
    assert heard == [[], ["a"], ["b"], ["c"]]


def test_producer_id_blocks_are_never_given_twice(tmp_path: Path) -> None:
    node = started(tmp_path / "data")
    blocks = [node.submit(AllocateProducerIdsRequest(1, node.broker_epoch), 0).producer_id_start for _ in range(3)]
    assert blocks == [0, 1000, 2000]
    stale = node.submit(AllocateProducerIdsRequest(1, 999), 0)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    epoch = node.shut_down()
    again = Node(tmp_path / "data").start().join(epoch)
    assert again.submit(AllocateProducerIdsRequest(1, again.broker_epoch), 0).producer_id_start == 3000


def test_a_transaction_that_a_crash_left_open_is_aborted(tmp_path: Path) -> None:
    from ottla.metadata.records import BeginTransactionRecord, TopicRecord, encode_frame
    from ottla.model.ids import Uuid

    node = started(tmp_path / "data")
    node.submit(create("kept"), 7)
    open_records = [BeginTransactionRecord("half"), TopicRecord("half", Uuid(b"h" * 16))]
    node.raft.append([encode_frame(record, 30) for record in open_records])
    node.raft.sync()
    node.kill()
    again = Node(tmp_path / "data").start().join()
    assert set(again.image.topics_by_name) == {"kept"}
    assert again.image.transaction is None
    again.submit(create("half"), 7)
    assert set(again.image.topics_by_name) == {"kept", "half"}


def test_closing_answers_who_waits_for_a_flush_that_is_under_way(tmp_path: Path) -> None:
    node = started(tmp_path / "data")
    node.runtime.driver._blocking = later = Later()
    waiting = node.runtime.submit(create("a"), V7)
    node.runtime.close()
    assert waiting.result.topics[0].error_code == 0
    _, done = later.waiting.pop()
    done(OSError(9, "Bad file descriptor"))
    assert isinstance(node.runtime.submit(create("b"), V7).exception, KafkaError)
    assert set(Node(tmp_path / "data").start().image.topics_by_name) == {"a"}


@pytest.mark.parametrize("frame", [b"\x01\x63\x00", b"\x02\x0c\x00", bytes.fromhex("010900") + b"z" * 16 + b"\0"])
def test_a_log_that_this_release_cannot_read_is_refused(tmp_path: Path, frame: bytes) -> None:
    node = started(tmp_path / "data")
    node.raft.append([frame])
    node.raft.sync()
    node.kill()
    with pytest.raises(MetadataLogError, match="holds what this release cannot apply"):
        Node(tmp_path / "data").start()
