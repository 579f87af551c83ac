"""Nothing that a group keeps of a deleted topic counts for a new topic of the same name.

The cases: offsets of open transactions, a log that refuses writes while the topic goes, a loading shard, a late
request. None of them gives the new topic an offset of the old topic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.runtime import EndOfTransaction, ShardState, TransactionalProducer
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, ProducerId, Uuid
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.protocol.generated.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordinator.virtual_world import World
from tests.share.test_share_groups import MemoryPersister, ShareWorld

FULL = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
PRODUCER = ProducerId(7)
NO_OFFSET = -1


def commit_pending(
    world: World, offset: int, producer_id: ProducerId = PRODUCER, topic_id: Uuid | None = None
) -> ErrorCode:
    request = TxnOffsetCommitRequest("x", "g", producer_id, 0, generation_id=-1)
    request.topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset, -1, None)])]
    seen: list[Any] = []
    ids = {"t": world.topics["t"].id if topic_id is None else topic_id}
    world.coordinator.commit_transactional_offsets(4, request, ids, TransactionalProducer(producer_id, 0), seen.append)
    return ErrorCode(seen[0].topics[0].partitions[0].error_code)


def commit(world: World, offset: int) -> None:
    topic = OffsetCommitRequestTopic("t", world.topics["t"].id, [OffsetCommitRequestPartition(0, offset)])
    seen: list[Any] = []
    world.coordinator.commit_offsets(9, OffsetCommitRequest("g", topics=[topic]), seen.append)
    assert seen[0].topics[0].partitions[0].error_code == 0


def end_transaction(world: World, producer_id: ProducerId = PRODUCER) -> None:
    end = EndOfTransaction(producer_id, 0, 0, committed=True)
    world.coordinator.shards[0].end_transaction(end, lambda _none: None)


def fetch(world: World, topic_id: Uuid = ZERO_UUID) -> int:
    request_group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", topic_id, [0])])
    seen: list[Any] = []
    world.coordinator.fetch_offsets(request_group, seen.append, require_stable=False)
    return seen[0].topics[0].partitions[0].committed_offset


def fetch_all(world: World) -> list[str]:
    """The topics that the group has offsets of."""
    seen: list[Any] = []
    world.coordinator.fetch_offsets(OffsetFetchRequestGroup("g", topics=None), seen.append, require_stable=False)
    return [topic.name for topic in seen[0].topics]


def remake(world: World) -> None:
    world.drop_topic("t")
    world.set_topic("t", 1)


@pytest.mark.parametrize("restarted", [False, True])
def test_pending_offsets_of_a_deleted_topic_do_not_come_back_with_the_commit(restarted: bool) -> None:
    world = World()
    world.set_topic("t", 1)
    assert commit_pending(world, 500) is ErrorCode.NONE
    remake(world)
    if restarted:
        world.restart()
    end_transaction(world)
    assert fetch(world) == NO_OFFSET
    assert len(world.machine().offsets) == 0


def test_the_offsets_of_other_topics_of_the_transaction_count() -> None:
    world = World()
    world.set_topic("t", 1)
    world.set_topic("u", 1)
    commit_pending(world, 500)
    request = TxnOffsetCommitRequest("x", "g", PRODUCER, 0, generation_id=-1)
    request.topics = [TxnOffsetCommitRequestTopic("u", [TxnOffsetCommitRequestPartition(0, 9, -1, None)])]
    ids = {"u": world.topics["u"].id}
    world.coordinator.commit_transactional_offsets(4, request, ids, TransactionalProducer(PRODUCER, 0), lambda _: None)
    remake(world)
    end_transaction(world)
    assert [tuple(target) for target in world.machine().offsets.partitions("g")] == [("u", 0)]


def test_an_offset_that_arrives_after_its_topic_was_deleted_is_refused() -> None:
    """The broker asked the transaction's coordinator in between; meanwhile the topic was deleted and created again."""
    world = World()
    old = world.set_topic("t", 1)
    remake(world)
    assert commit_pending(world, 500, topic_id=old) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    end_transaction(world)
    assert fetch(world) == NO_OFFSET


@pytest.mark.parametrize("pending", [False, True])
def test_a_log_that_takes_no_tombstones_does_not_give_the_offset_to_the_new_topic(pending: bool) -> None:
    world = World()
    world.set_topic("t", 1)
    if pending:
        commit_pending(world, 500)
    else:
        commit(world, 500)
    world.partition().failure = FULL
    remake(world)
    assert fetch(world) == NO_OFFSET
    assert fetch_all(world) == []
    world.partition().failure = None
    if pending:
        end_transaction(world)  # before the tombstones are written again
    assert fetch(world) == NO_OFFSET
    world.time.advance(5_000)
    assert len(world.machine().offsets) == 0


def test_tombstones_that_come_late_leave_the_transactions_of_the_new_topic_alone() -> None:
    world = World()
    world.set_topic("t", 1)
    commit(world, 500)
    world.partition().failure = FULL
    remake(world)
    world.partition().failure = None
    later = ProducerId(8)
    assert commit_pending(world, 3, later) is ErrorCode.NONE
    world.time.advance(20_000)
    end_transaction(world, later)
    assert fetch(world) == 3
    world.time.advance(20_000)
    assert fetch(world) == 3


def test_a_topic_deleted_while_the_shard_is_loading_is_forgotten() -> None:
    world = World(GroupCoordinatorSettings(offsets_topic_num_partitions=1, offsets_load_buffer_size=1))
    world.set_topic("t", 1)
    for offset in range(5):
        commit(world, offset)
    commit_pending(world, 500)
    world.restart()
    shard = world.coordinator.shards[0]
    assert shard.state is ShardState.LOADING
    remake(world)
    assert shard.state is ShardState.LOADING
    world.time.advance(100)
    assert shard.state is ShardState.ACTIVE
    end_transaction(world)
    assert fetch(world) == NO_OFFSET
    assert len(world.machine().offsets) == 0


@pytest.mark.parametrize("loading", [False, True])
def test_a_share_group_whose_topic_was_created_again_settles_though_the_log_refused_writes(loading: bool) -> None:
    world = ShareWorld(MemoryPersister())
    world.set_topic("t", 2)
    epoch = 0

    def beat() -> int:
        nonlocal epoch
        seen: list[Any] = []
        request = ShareGroupHeartbeatRequest("s", "m", epoch, None, ["t"] if epoch == 0 else None)
        world.coordinator.share.heartbeat(Caller("c", "/h", 1), request, seen.append)
        epoch = seen[0].member_epoch
        return epoch

    for _ in range(4):
        beat()
    if loading:
        world.settings = replace(world.settings, offsets_load_buffer_size=1)
        world.restart()
        assert world.coordinator.shards[0].state is ShardState.LOADING
    else:
        world.partition().failure = FULL
    world.drop_topic("t")
    world.partition().failure = None
    world.set_topic("t", 2)
    world.time.advance(5_000)
    for _ in range(4):
        beat()
    assert beat() == beat() == beat()
    initialized = world.machine().groups["s"].initialized
    assert set(initialized) == {world.topics["t"].id}
