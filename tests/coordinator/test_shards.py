"""Load, partitioning, timers and transactions of a shard."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.offset_store import CommittedOffset
from ottla.coordinator.records import GroupMetadataRecord, OffsetCommitRecord, encode, offset_commit_value
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.coordinator.shards import partition_for
from ottla.coordinator.timers import KeyedTimers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, Uuid
from ottla.model.java_order import java_hash
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.records import SimpleRecord, build_batch, build_end_txn_marker
from tests.coordinator.virtual_world import MemoryPartition, VirtualTime, World


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("größe", 98762257),
        ("🐍", 1772400),
    ],
)
def test_java_hash(group: str, expected: int) -> None:
    assert java_hash(group) == expected


def test_partition_of_a_group() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("my-group", 50) == 1906497762 % 50 == 12


def answers() -> tuple[list[Any], Any]:
    seen: list[Any] = []
    return seen, seen.append


def commit(world: World, group: str, offset: int, *, topic: str = "t", topic_id: Uuid = ZERO_UUID) -> None:
    partitions = [OffsetCommitRequestPartition(0, offset)]
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, topic_id, partitions)])
    seen, waiter = answers()
    world.coordinator.commit_offsets(9, request, waiter)
    assert seen[0].topics[0].partitions[0].error_code == 0


def fetch(world: World, group: str, *, topic_id: Uuid = ZERO_UUID, require_stable: bool = False) -> tuple[int, int]:
    seen, waiter = answers()
    request_group = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", topic_id, [0])])
    world.coordinator.fetch_offsets(request_group, waiter, require_stable=require_stable)
    partition = seen[0].topics[0].partitions[0]
    return partition.committed_offset, partition.error_code


def test_a_large_log_is_loaded_in_pieces() -> None:
    settings = GroupCoordinatorSettings(offsets_load_buffer_size=200, offsets_topic_num_partitions=1)
    world = World(settings)
    for offset in range(50):
        commit(world, f"g{offset % 7}", offset)
    world.restart()
    seen, waiter = answers()
    world.coordinator.list_groups([], [], waiter)
    assert seen[0].code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.time.advance(0)
    assert fetch(world, "g0") == (49, 0)


def test_a_node_that_does_not_lead_is_not_the_coordinator() -> None:
    world = World()
    world.resign()
    seen, waiter = answers()
    world.coordinator.delete_group("g", waiter)
    assert seen[0].code is ErrorCode.NOT_COORDINATOR


def append_raw(partition: MemoryPartition, batch: bytearray) -> None:
    partition.append_internal(batch, now_ms=0)


def txn_commit(world: World, producer_id: int, offset: int) -> None:
    value = offset_commit_value(offset, -1, "", 0, -1)
    record = SimpleRecord(0, *encode(OffsetCommitRecord("g", "t", 0, value)))
    batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    append_raw(world.partition(), batch)


def end_txn(world: World, producer_id: int, *, committed: bool) -> None:
    marker = build_end_txn_marker(
        commit=committed, coordinator_epoch=0, timestamp=0, producer_id=producer_id, producer_epoch=0
    )
    append_raw(world.partition(), marker)


def test_offsets_of_transactions_that_kafka_wrote() -> None:
    """Pending until the marker, unstable to whom that matters, and the later record wins."""
    world = World()
    commit(world, "g", 1)
    txn_commit(world, 7, 2)
    world.restart()
    assert fetch(world, "g") == (1, 0)
    assert fetch(world, "g", require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end_txn(world, 7, committed=True)
    world.restart()
    assert fetch(world, "g", require_stable=True) == (2, 0)
    txn_commit(world, 7, 3)
    commit(world, "g", 4)
    end_txn(world, 7, committed=True)
    world.restart()
    assert fetch(world, "g") == (4, 0)
    txn_commit(world, 7, 5)
    end_txn(world, 7, committed=False)
    world.restart()
    assert fetch(world, "g", require_stable=True) == (4, 0)


def test_deleting_a_group_ends_its_pending_offsets() -> None:
    world = World()
    commit(world, "g", 1)
    txn_commit(world, 7, 2)
    world.restart()
    seen, waiter = answers()
    world.coordinator.delete_group("g", waiter)
    assert seen[0].error_code == 0
    end_txn(world, 7, committed=True)
    world.restart()
    assert fetch(world, "g", require_stable=True) == (-1, 0)


def test_an_offset_of_a_deleted_topic_is_not_one_of_its_successor() -> None:
    world = World()
    old, new = Uuid(b"o" * 16), Uuid(b"n" * 16)
    commit(world, "g", 5, topic_id=old)
    assert fetch(world, "g", topic_id=old) == (5, 0)
    assert fetch(world, "g", topic_id=new) == (-1, 0)
    assert fetch(world, "g") == (5, 0)


def test_deleted_topics_are_forgotten() -> None:
    world = World()
    old, new = Uuid(b"o" * 16), Uuid(b"n" * 16)
    commit(world, "g", 5, topic_id=old)
    commit(world, "h", 6, topic_id=new)
    commit(world, "g", 7, topic="u", topic_id=Uuid(b"u" * 16))
    image = MetadataImage()
    offsets = next(iter(world.replicas.by_name))
    image.topics_by_name[offsets] = TopicImage(offsets, Uuid(b"offsets-topic-id"), {0: None})  # type: ignore[dict-item]
    world.coordinator.on_metadata(MetadataDelta(topics_deleted={old: TopicImage("t", old)}), image)
    assert fetch(world, "g") == (-1, 0)
    assert fetch(world, "h") == (6, 0)
    world.restart()
    assert fetch(world, "g") == (-1, 0)
    assert world.machine().offsets.get("g", "u", 0).offset == 7


def test_unreadable_and_foreign_records_do_not_stop_a_load() -> None:
    world = World()
    commit(world, "g", 1)
    foreign = [
        SimpleRecord(0, b"\x00\x03\x00\x01x", b"\x00\x00"),
        SimpleRecord(0, b"\x00", b""),
        SimpleRecord(0, None, b""),
    ]
    append_raw(world.partition(), build_batch(foreign))
    commit(world, "g", 2)
    world.restart()
    assert fetch(world, "g") == (2, 0)


def test_ids_that_are_only_asked_for_are_limited() -> None:
    world = World(GroupCoordinatorSettings(max_pending_members=3))
    codes = []
    for number in range(5):
        seen, waiter = answers()
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
        world.coordinator.join(Caller(f"c{number}", "/h", 9), request, waiter)
        codes.append(seen[0].error_code)
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2


def test_a_member_has_one_parked_join() -> None:
    world = World(GroupCoordinatorSettings(group_initial_rebalance_delay_ms=3000))
    protocols = [JoinGroupRequestProtocol("range", b"")]
    first, waiter = answers()
    world.coordinator.join(
        Caller("c", "/h", 9), JoinGroupRequest("g", 10_000, 10_000, "", None, "x", protocols), waiter
    )
    request = JoinGroupRequest("g", 10_000, 10_000, first[0].member_id, None, "x", protocols)
    parked = [answers() for _ in range(3)]
    for _, waiter in parked:
        world.coordinator.join(Caller("c", "/h", 9), request, waiter)
    assert [seen[0].error_code for seen, _ in parked[:2]] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    world.time.advance(3000)
    assert parked[2][0][0].error_code == 0
    assert all(len(seen) == 1 for seen, _ in parked)


def test_a_deadline_that_moves_costs_no_timer() -> None:
    time = VirtualTime()
    fired: list[str] = []
    timers: KeyedTimers[str] = KeyedTimers(time, time, fired.append)
    timers.schedule("k", 100, "first")
    for _ in range(50):
        time.advance(90)
        timers.schedule("k", 100, "moved")
    assert len(time._queue) == 1
    assert not fired
    time.advance(100)
    assert fired == ["moved"]
    assert "k" not in timers
    timers.schedule("k", 100, "late")
    timers.schedule("k", 10, "early")
    time.advance(10)
    assert fired == ["moved", "early"]
    timers.schedule("k", 10, "never")
    timers.cancel("k")
    time.advance(1000)
    assert fired == ["moved", "early"]


def test_an_append_that_fails_leaves_offsets_alone() -> None:
    world = World()
    commit(world, "g", 1)
    world.partition().failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    seen, waiter = answers()
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 2)])]
    world.coordinator.commit_offsets(9, OffsetCommitRequest("g", topics=topics), waiter)
    assert seen[0].code is ErrorCode.NOT_COORDINATOR
    assert fetch(world, "g") == (1, 0)


def test_a_value_of_an_old_kafka() -> None:
    """Version 1 carried an expiry of its own; it still counts."""
    value = offset_commit_value(5, -1, "", 10, 99)
    assert encode(OffsetCommitRecord("g", "t", 0, value))[1][:2] == b"\x00\x01"  # type: ignore[index]
    assert CommittedOffset.from_record(3, value).expire_timestamp_ms == 99
    assert GroupMetadataRecord("g", None).value is None


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), OSError(errno.EMFILE, "injected")])
@pytest.mark.parametrize("offline", [False, True])
def test_a_disk_that_refuses_a_read_while_a_shard_loads(error: Exception, offline: bool) -> None:
    """Without a free descriptor the directory stays and we lead on: the groups of the partition have no other node."""
    world = World()
    commit(world, "g", 7)
    plain = world.logs[0].read
    world.logs[0].log_dir = SimpleNamespace(  # type: ignore[attr-defined]
        offline=offline, storage_error=lambda _error: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    )

    def refuse(_offset: int, _max_bytes: int) -> Any:
        raise error

    world.logs[0].read = refuse  # type: ignore[method-assign]
    world.restart()
    refused = ErrorCode.NOT_COORDINATOR if offline else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of_fetch(world) is refused
    world.time.advance(5_000)
    assert code_of_fetch(world) is refused
    world.logs[0].read = plain  # type: ignore[method-assign]
    world.time.advance(5_000)
    if not offline:
        assert fetch(world, "g") == (7, 0)


def code_of_fetch(world: World) -> ErrorCode:
    seen, waiter = answers()
    request_group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", ZERO_UUID, [0])])
    world.coordinator.fetch_offsets(request_group, waiter, require_stable=False)
    return seen[0].code if isinstance(seen[0], KafkaError) else ErrorCode(seen[0].error_code)
