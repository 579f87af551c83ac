"""Shards that load their logs: a bounded number of records a turn, one shard after the other."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.loader import RECORDS_OF_A_STEP, Loader
from ottla.coordinator.records import OffsetCommitRecord, encode, offset_commit_value
from ottla.coordinator.runtime import ShardState
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.coordinator.shards import partition_for
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.records import SimpleRecord, build_batch
from tests.coordinator.virtual_world import World

SHARDS = 3
RECORDS = 8 * RECORDS_OF_A_STEP
MOST_OF_A_TURN = 3 * RECORDS_OF_A_STEP


def group_of(index: int) -> str:
    return next(name for name in (f"g{number}" for number in range(100)) if partition_for(name, SHARDS) == index)


def commits(group: str, count: int) -> bytearray:
    values = [offset_commit_value(offset, -1, "", 0, -1) for offset in range(count)]
    records = [encode(OffsetCommitRecord(group, "t", offset, value)) for offset, value in enumerate(values)]
    return build_batch([SimpleRecord(0, *record) for record in records])


@pytest.fixture
def world() -> World:
    """Three shards with a large batch each, just elected."""
    world = World(GroupCoordinatorSettings(offsets_topic_num_partitions=SHARDS), partitions=SHARDS)
    for index in range(SHARDS):
        world.partition(index).append_internal(commits(group_of(index), RECORDS), now_ms=0)
    world.restart()
    return world


def fetch(world: World, group: str) -> Any:
    """The committed offset of partition 7, or the refusal's code."""
    answers: list[Any] = []
    request = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", partition_indexes=[7])])
    world.coordinator.fetch_offsets(request, answers.append, require_stable=False)
    if isinstance(answers[0], KafkaError):
        return answers[0].code
    return answers[0].topics[0].partitions[0].committed_offset


def test_a_turn_replays_a_bounded_number_of_records_of_all_shards(world: World) -> None:
    shards = list(world.coordinator.shards)
    most, replayed = 0, sum(shard.replayed for shard in shards)
    assert replayed <= MOST_OF_A_TURN
    turns = 0
    while any(shard.state is ShardState.LOADING for shard in shards):
        world.time.turn()
        turns += 1
        total = sum(shard.replayed for shard in shards)
        most, replayed = max(most, total - replayed), total
    assert replayed == SHARDS * RECORDS
    assert most <= MOST_OF_A_TURN
    assert turns <= SHARDS * RECORDS / RECORDS_OF_A_STEP
    assert [fetch(world, group_of(index)) for index in range(SHARDS)] == [7] * SHARDS


def test_the_shard_that_a_client_asks_for_comes_first(world: World) -> None:
    asked = SHARDS - 1
    assert fetch(world, group_of(asked)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while world.coordinator.shards[asked].state is ShardState.LOADING:
        world.time.turn()
    others = [shard for shard in world.coordinator.shards if shard is not world.coordinator.shards[asked]]
    assert all(shard.state is ShardState.LOADING for shard in others)


def test_a_turn_ends_when_nothing_is_left(world: World) -> None:
    world.time.advance(0)
    assert {shard.state for shard in world.coordinator.shards} == {ShardState.ACTIVE}


def test_a_load_that_failed_goes_on_with_the_batch_that_it_could_not_read(world: World) -> None:
    """Each record is replayed once, in order, although a read between two batches is refused."""
    log = world.partition(0).log
    world.partition(0).append_internal(commits(group_of(0), RECORDS), now_ms=0)
    offsets: list[int] = []

    class Target:
        def replay(self, offset: int, producer_id: int, record: Any) -> None:
            offsets.append(offset)

        def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
            raise NotImplementedError

    class Refusing:
        log_start_offset, log_end_offset = log.log_start_offset, log.log_end_offset
        refusals = 0

        def read(self, offset: int, max_bytes: int) -> Any:
            if offset and not self.refusals:
                self.refusals += 1
                raise OSError(24, "Too many open files")
            return log.read(offset, max_bytes)

    refusing = Refusing()
    loader = Loader(refusing, Target(), max_bytes=1)

    def load() -> None:
        while not loader.load_some():
            pass

    with pytest.raises(OSError, match="Too many"):
        load()
    load()
    assert offsets == list(range(2 * RECORDS))
    assert refusing.refusals == 1
