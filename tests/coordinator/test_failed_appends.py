"""A log that refuses writes for a while, or accepts few at a time, delays no member's end and no offset's expiry for
ever."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.runtime import EndOfTransaction
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.coordinator.transactions.end_transaction import EndRequest
from ottla.coordinator.transactions.init_producer_id import InitRequest
from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
from ottla.coordinator.transactions.states import TransactionState
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.model.topic_names import OFFSETS_TOPIC
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.coordinator.virtual_world import World
from tests.transactions.virtual_world import TransactionWorld

CALLER = Caller("c", "/h", 1)
FULL = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
SESSION_MS = 45_000


class Beats:
    """Members of one consumer or share group."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.world = World()
        self.topic = self.world.set_topic("t", 4)

    def beat(self, member: str, epoch: int, **more: Any) -> Any:
        seen: list[Any] = []
        if self.kind == "share":
            request = ShareGroupHeartbeatRequest("g", member, epoch, None, ["t"])
            self.world.coordinator.share.heartbeat(CALLER, request, seen.append)
        else:
            consumer = ConsumerGroupHeartbeatRequest(
                "g", member, epoch, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
            )
            for name, value in more.items():
                setattr(consumer, name, value)
            self.world.coordinator.consumer_heartbeat(CALLER, consumer, seen.append)
        return seen[0]

    def members(self) -> set[str]:
        return set(self.world.machine().groups["g"].members)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_session_that_ends_while_nothing_can_be_written_has_ended(kind: str) -> None:
    beats = Beats(kind)
    beats.beat("alive", 0)
    beats.beat("silent", 0)
    assert beats.members() == {"alive", "silent"}
    beats.world.partition().failure = FULL
    beats.world.time.advance(SESSION_MS + 1)
    assert beats.members() == {"alive", "silent"}
    beats.world.partition().failure = None
    beats.world.time.advance(1_000)
    assert beats.members() == set()


def test_the_dead_of_a_log_that_takes_nothing_do_not_keep_the_node_busy() -> None:
    beats = Beats("share")
    for number in range(20):
        beats.beat(f"m{number}", 0)
    refused = beats.world.partition()
    refused.failure = FULL
    beats.world.time.advance(SESSION_MS + 60_000)
    before = refused.refusals
    beats.world.time.advance(60_000)
    assert refused.refusals - before <= 20 * 60 / 7
    refused.failure = None
    beats.world.time.advance(8_000)
    assert beats.members() == set()


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_member_whose_leave_could_not_be_written_still_has_a_session_that_ends(kind: str) -> None:
    beats = Beats(kind)
    beats.beat("leaving", 0)
    beats.world.partition().failure = FULL
    assert beats.beat("leaving", -1).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    beats.world.partition().failure = None
    assert beats.members() == {"leaving"}
    beats.world.time.advance(SESSION_MS + 1)
    assert beats.members() == set()


def test_a_refused_successor_does_not_take_the_session_of_a_static_member() -> None:
    """The static member left for a while; its successor subscribes with an invalid expression."""
    beats = Beats("consumer")
    beats.beat("first", 0, instance_id="i")
    beats.beat("first", -2, instance_id="i")
    refused = beats.beat("second", 0, instance_id="i", subscribed_topic_regex="[")
    assert refused.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert beats.members() == {"first"}
    beats.world.time.advance(SESSION_MS + 1)
    assert beats.members() == set()


def test_a_refused_join_leaves_its_request_as_it_was() -> None:
    """The member's id is new with each try: an id of a join that was not written is nobody's."""
    beats = Beats("consumer")
    beats.beat("other", 0)
    subscription = b"\x00\x01" + ConsumerProtocolSubscription(["t"], None, []).to_bytes(1)
    protocols = [JoinGroupRequestProtocol("range", subscription)]
    join = JoinGroupRequest("g", SESSION_MS, SESSION_MS, "", None, "consumer", protocols)
    heartbeat = ConsumerGroupHeartbeatRequest(
        "g", "", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    beats.world.partition().failure = FULL
    seen: list[Any] = []
    beats.world.coordinator.join(Caller("c", "/h", 3), join, seen.append)
    beats.world.coordinator.consumer_heartbeat(Caller("c", "/h", 0), heartbeat, seen.append)
    assert len(seen) == 2
    assert (join.member_id, heartbeat.member_id) == ("", "")


def commit(world: World, group: str, topic: str, partitions: int) -> None:
    step = 1_500  # the records of one commit must fit into a batch
    for first in range(0, partitions, step):
        rows = [OffsetCommitRequestPartition(index, 7) for index in range(first, min(first + step, partitions))]
        topics = [OffsetCommitRequestTopic(topic, world.topics[topic].id, rows)]
        seen: list[Any] = []
        world.coordinator.commit_offsets(10, OffsetCommitRequest(group, topics=topics), seen.append)
        assert seen[0].topics[0].partitions[0].error_code == 0


def test_offsets_that_a_client_keeps_for_ever() -> None:
    """OffsetCommit 2-4 has a retention of its own: Long.MAX_VALUE and the time of the commit do not fit into a record."""
    world = World()
    world.set_topic("t", 1)
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 7)])]
    seen: list[Any] = []
    request = OffsetCommitRequest("g", retention_time_ms=2**63 - 1, topics=topics)
    world.coordinator.commit_offsets(4, request, seen.append)
    assert seen[0].topics[0].partitions[0].error_code == 0
    world.time.advance(30 * 86_400_000)
    world.restart()
    assert len(world.machine().offsets) == 1


def test_the_offsets_of_a_deleted_topic_go_however_many_they_are() -> None:
    world, large = World(), "large".ljust(249, "x")
    world.set_topic(large, 5_000)
    world.set_topic("other", 1)
    commit(world, "g", large, 5_000)
    commit(world, "h", "other", 1)
    world.drop_topic(large)
    world.time.advance(10)
    assert len(world.machine().offsets) == 1
    world.restart()
    world.time.advance(0)
    assert len(world.machine().offsets) == 1


def test_a_new_commit_is_not_forgotten_with_the_topic_before() -> None:
    world = World()
    world.set_topic("t", 3_000)
    commit(world, "g", "t", 3_000)
    world.partition().failure = FULL
    world.drop_topic("t")
    world.time.advance(100)
    world.partition().failure = None
    world.set_topic("t", 1)
    commit(world, "g", "t", 1)
    world.time.advance(5_000)
    assert [tp.partition for tp in world.machine().offsets.partitions("g")] == [0]


def test_tombstones_of_long_names_fit_into_batches() -> None:
    """A group's id may be longer than any topic's name: a thousand of them are more than a batch holds."""
    settings = GroupCoordinatorSettings(offsets_topic_num_partitions=1, offsets_retention_minutes=1)
    world = World(settings)
    world.set_topic("t", 1)
    for number in range(1_100):
        commit(world, f"{number}".ljust(1_100, "x"), "t", 1)
    world.time.advance(settings.offsets_retention_check_interval_ms + 1)
    assert len(world.machine().offsets) == 0
    assert not world.machine().groups


def test_a_round_that_cannot_be_written_does_not_come_again_at_once() -> None:
    settings = GroupCoordinatorSettings(offsets_topic_num_partitions=1, offsets_retention_minutes=1)
    world = World(settings)
    world.set_topic("t", 3_000)
    commit(world, "g", "t", 3_000)
    world.partition().failure = FULL
    rounds: list[float] = []
    expiry = world.machine()._expiry
    expire = expiry.expire
    expiry.expire = lambda: rounds.append(world.time.now) or expire()
    expiry.schedule()
    world.time.advance(settings.offsets_retention_check_interval_ms + 2_000)
    assert 2 <= len(rounds) <= 6
    world.partition().failure = None
    world.time.advance(2_000)
    assert len(world.machine().offsets) == 0


def test_all_transactions_that_are_late_are_aborted_however_many_they_are() -> None:
    """After a pause of the coordinator all open transactions time out together, more than one batch holds."""
    settings = TransactionCoordinatorSettings(transaction_state_log_num_partitions=1)
    world = TransactionWorld(lambda _end, _tp: ErrorCode.NONE, settings)
    partitions = frozenset(TopicPartition("a-topic-with-a-name", index) for index in range(150))
    for number in range(2_000):
        name, ids = f"transactional-id-{number}", []
        world.coordinator.init_producer_id(InitRequest(name, 1_000), ids.append)
        world.coordinator.add_partitions(name, *ids[0], partitions, 2, ids.append)
    assert {metadata.state for metadata in world.transactions.values()} == {TransactionState.ONGOING}
    world.time.advance(60_000)
    assert {metadata.state for metadata in world.transactions.values()} == {TransactionState.COMPLETE_ABORT}


def test_a_topic_that_is_created_again_with_fewer_partitions_leaves_no_shard_behind() -> None:
    world = World(partitions=3)
    assert len(world.coordinator.shards) == 3
    del world.replicas.by_name[OFFSETS_TOPIC][2]
    registration = PartitionRegistration((1,), (1,), 1, 1, 1)
    topic = TopicImage(OFFSETS_TOPIC, Uuid(b"another-topic-id"), dict.fromkeys(range(2), registration))
    image = MetadataImage(topics_by_id={topic.id: topic}, topics_by_name={topic.name: topic})
    world.coordinator.on_metadata(MetadataDelta(partitions={topic.id: {0, 1}}), image, 9)
    assert len(world.coordinator.shards) == 2


def test_a_late_word_of_one_transaction_does_not_complete_the_next() -> None:
    """The end of the first is written and not committed for longer than anybody waits; the second times out meanwhile."""
    marked: list[tuple[int, bool]] = []

    def mark(end: EndOfTransaction, tp: TopicPartition) -> ErrorCode:
        marked.append((tp.partition, end.committed))
        return ErrorCode.NONE

    settings = TransactionCoordinatorSettings(transaction_state_log_num_partitions=1)
    world, heard = TransactionWorld(mark, settings), []
    world.coordinator.init_producer_id(InitRequest("a", 1_000), heard.append)
    producer_id, epoch = heard[0]
    world.coordinator.add_partitions("a", producer_id, epoch, frozenset({TopicPartition("t", 0)}), 2, heard.append)
    world.channel.held = True
    world.coordinator.end(EndRequest("a", producer_id, epoch, committed=True, transaction_version=2), heard.append)
    world.partition.hold_commits = True
    world.channel.release()
    world.coordinator.add_partitions("a", producer_id, epoch + 1, frozenset({TopicPartition("t", 1)}), 2, heard.append)
    world.time.advance(settings.request_timeout_ms + 1_000)
    assert world.transactions["a"].state is TransactionState.PREPARE_ABORT
    world.partition.hold_commits = False
    world.partition.commit()
    world.time.advance(1_000)
    assert world.transactions["a"].state is TransactionState.COMPLETE_ABORT
    assert marked == [(0, True), (1, False)]
