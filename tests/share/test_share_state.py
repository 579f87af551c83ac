"""The share coordinator's machine: epochs that fence, snapshots behind updates, and a log that gives the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.share.batches import StateBatch, combine
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.machine import ShareDecision, ShareStateMachine
from ottla.coordinator.share.records import SharePartitionKey, decode, encode
from ottla.coordinator.share.settings import ShareCoordinatorSettings
from ottla.coordinator.timers import KeyedTimers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.protocol.generated.write_share_group_state_request import PartitionData
from ottla.protocol.generated.write_share_group_state_request import StateBatch as WireBatch
from tests.coordinator.virtual_world import MemoryLog, MemoryPartition, MemoryReplicas, VirtualTime

TOPIC = Uuid(bytes(range(16)))
KEY = SharePartitionKey("g", TOPIC, 0)


class Log:
    """A machine and the log of its records, as bytes."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.time = VirtualTime()
        self.settings = ShareCoordinatorSettings(
            share_coordinator_snapshot_update_records_per_snapshot=updates_per_snapshot
        )
        self.records: list[tuple[bytes, bytes | None]] = []
        self.machine = self._new()

    def _new(self) -> ShareStateMachine:
        deadlines: KeyedTimers[Any] = KeyedTimers(self.time, self.time, lambda operation: self._append(operation()))
        machine = ShareStateMachine(self.settings, self.time, deadlines)
        registration = PartitionRegistration(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
        topic = TopicImage(id=TOPIC, name="t", partitions={0: registration, 1: registration})
        machine.on_metadata(MetadataImage(topics_by_id={TOPIC: topic}, topics_by_name={"t": topic}))
        return machine

    def _append(self, decision: ShareDecision) -> None:
        for record in decision.records:
            self.records.append(encode(record))
            self.machine.replay(len(self.records) - 1, -1, record)

    def run(self, operation: Callable[[ShareStateMachine, Callable[[Any], None]], ShareDecision]) -> Any:
        decision = operation(self.machine, lambda _answer: None)
        self._append(decision)
        return decision.response[0].response

    def replayed(self) -> ShareStateMachine:
        machine = self._new()
        for offset, (key, value) in enumerate(self.records):
            record = decode(key, value)
            assert record is not None
            machine.replay(offset, -1, record)
        return machine

    def initialize(self, state_epoch: int, start_offset: int = -1) -> Any:
        return self.run(lambda machine, waiter: machine.initialize(KEY, state_epoch, start_offset, waiter))

    def write(self, data: PartitionData) -> Any:
        return self.run(lambda machine, waiter: machine.write(KEY, data, waiter))

    def read(self, leader_epoch: int) -> Any:
        return self.run(lambda machine, waiter: machine.read(KEY, leader_epoch, waiter))


def _refused(act: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        act()
    return raised.value.code


def test_nothing_can_be_read_or_written_before_it_is_initialized() -> None:
    log = Log()
    assert _refused(lambda: log.read(0)) is ErrorCode.INVALID_REQUEST
    assert _refused(lambda: log.write(PartitionData(0, 0, 0, 0, 0, []))) is ErrorCode.INVALID_REQUEST
    summary = log.run(lambda machine, waiter: machine.summary(KEY, waiter))
    assert (summary.start_offset, summary.delivery_complete_count, summary.leader_epoch) == (-1, -1, 0)


def test_older_leaders_and_older_groups_are_fenced() -> None:
    log = Log()
    log.initialize(3)
    assert log.read(7).state_epoch == 3
    assert _refused(lambda: log.read(6)) is ErrorCode.FENCED_LEADER_EPOCH
    assert _refused(lambda: log.write(PartitionData(0, 3, 6, 0, 0, []))) is ErrorCode.FENCED_LEADER_EPOCH
    assert _refused(lambda: log.write(PartitionData(0, 2, 7, 0, 0, []))) is ErrorCode.FENCED_STATE_EPOCH
    assert _refused(lambda: log.initialize(2)) is ErrorCode.FENCED_STATE_EPOCH
    log.initialize(4, 50)
    assert log.read(7).start_offset == 50


@pytest.mark.parametrize("state_epoch", [3, 4])
def test_a_late_initialization_forgets_no_accepted_records(state_epoch: int) -> None:
    """The group sent the request again, and its first request came first after all (simulator, seed 372)."""
    log = Log()
    log.initialize(3)
    log.write(PartitionData(0, 3, 7, 2, 2, [WireBatch(2, 4, 2, 1)]))
    before = log.machine.states[KEY]
    log.initialize(state_epoch)
    assert log.machine.states[KEY] == before
    log.initialize(state_epoch, 0)
    assert log.machine.states[KEY].batches == ()


def test_a_topic_that_is_not_there_has_no_state() -> None:
    log = Log()
    elsewhere = SharePartitionKey("g", TOPIC, 2)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _refused(lambda: log.run(lambda m, w: m.initialize(elsewhere, 1, 0, w))) is unknown
    negative = SharePartitionKey("g", TOPIC, -1)
    assert _refused(lambda: log.run(lambda m, w: m.summary(negative, w))) is ErrorCode.INVALID_REQUEST


def test_the_state_of_a_deleted_topic_goes() -> None:
    log = Log()
    log.initialize(1, 0)
    log.machine.on_metadata(MetadataImage())
    log._append(log.machine.forget_gone())
    assert not log.machine.states
    assert not log.replayed().states


_BATCH = st.tuples(st.integers(0, 60), st.integers(0, 10), st.integers(1, 5), st.sampled_from([0, 2, 4])).map(
    lambda each: StateBatch(each[0], each[0] + each[1], each[2], each[3])
)


@given(st.lists(st.tuples(st.lists(_BATCH, max_size=4), st.integers(0, 3)), max_size=25), st.integers(0, 6))
def test_the_log_alone_gives_the_same_state(writes: list[tuple[list[StateBatch], int]], per_snapshot: int) -> None:
    log = Log(per_snapshot)
    log.initialize(1, 0)
    start = 0
    expected: tuple[StateBatch, ...] = ()
    for batches, moves in writes:
        start += moves
        wire = [WireBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches]
        log.write(PartitionData(0, 1, 0, start, 0, wire))
        expected = combine(expected, batches, start)
    state, again = log.machine.states[KEY], log.replayed().states[KEY]
    assert state == again
    assert state.start_offset == start
    assert state.batches == expected
    offsets = [number for batch in expected for number in range(batch.first_offset, batch.last_offset + 1)]
    assert offsets == sorted(set(offsets)), "batches overlap"


@given(st.lists(_BATCH, max_size=6), st.lists(_BATCH, max_size=6), st.integers(-1, 30))
def test_combining_keeps_for_each_offset_what_counts_most(
    older: list[StateBatch], newer: list[StateBatch], start: int
) -> None:
    def standings(batches: list[StateBatch] | tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for batch in batches:
            for number in range(max(batch.first_offset, start), batch.last_offset + 1):
                found[number] = max(found.get(number, (0, 0)), batch.standing)
        return found

    assert standings(combine(older, newer, start)) == standings([*older, *newer])


def test_idle_share_partitions_are_written_again_once() -> None:
    log = Log()
    log.initialize(1, 0)
    log._append(log.machine.on_loaded())
    for _ in range(3):
        log.time.advance(log.settings.share_coordinator_cold_partition_snapshot_interval_ms)
    assert len(log.records) == 2
    assert log.machine.first_needed_offset == 1


def test_what_a_snapshot_replaces_stays_until_the_snapshot_is_committed() -> None:
    """Another broker that leads next may not have the snapshot yet."""
    time, replicas = VirtualTime(), MemoryReplicas()
    settings = ShareCoordinatorSettings(share_coordinator_state_topic_num_partitions=1)
    coordinator = ShareCoordinator(settings, time, time, replicas)  # type: ignore[arg-type]
    partition = MemoryPartition(0, MemoryLog(), 1)
    deleted: list[int] = []
    partition.delete_records_before = deleted.append  # type: ignore[attr-defined]
    replicas.by_name[SHARE_GROUP_STATE_TOPIC] = {0: partition}
    registration = PartitionRegistration(replicas=(1,), isr=(1,), leader=1, leader_epoch=1, partition_epoch=0)
    topics = [
        TopicImage(id=TOPIC, name="t", partitions={0: registration}),
        TopicImage(id=Uuid(b"s" * 16), name=SHARE_GROUP_STATE_TOPIC, partitions={0: registration}),
    ]
    image = MetadataImage(topics_by_id={t.id: t for t in topics}, topics_by_name={t.name: t for t in topics})
    coordinator.on_metadata(MetadataDelta(reloaded=True), image)
    shard = coordinator.shards[0]
    shard.run(lambda machine: machine.initialize(KEY, 0, 0, lambda _: None))
    partition.hold_commits = True
    shard.run(lambda machine: machine.initialize(KEY, 1, 7, lambda _: None))
    coordinator.prune()
    assert deleted == []
    partition.commit()
    assert deleted == [1]


def test_a_load_whose_records_are_refused_keeps_its_deadlines() -> None:
    """A leader is often elected when replicas are missing: the states of a topic that is gone go later, and states at
    rest are written again so that the log before them can go."""
    time, replicas, held = VirtualTime(), MemoryReplicas(), MemoryLog()
    settings = ShareCoordinatorSettings(share_coordinator_state_topic_num_partitions=1)
    coordinator = ShareCoordinator(settings, time, time, replicas)  # type: ignore[arg-type]
    registration = PartitionRegistration(replicas=(1,), isr=(1,), leader=1, leader_epoch=1, partition_epoch=0)
    state_topic = TopicImage(id=Uuid(b"s" * 16), name=SHARE_GROUP_STATE_TOPIC, partitions={0: registration})

    def elect(epoch: int, *names: str) -> MemoryPartition:
        partition = MemoryPartition(0, held, epoch)
        replicas.by_name[SHARE_GROUP_STATE_TOPIC] = {0: partition}
        topics = [TopicImage(id=Uuid(name.encode() * 16), name=name, partitions={0: registration}) for name in names]
        topics.append(state_topic)
        image = MetadataImage(topics_by_id={t.id: t for t in topics}, topics_by_name={t.name: t for t in topics})
        partition.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS) if epoch > 1 else None
        coordinator.on_metadata(MetadataDelta(reloaded=True), image)
        return partition

    elect(1, "t", "u")
    stays, goes = (SharePartitionKey("g", Uuid(name * 16), 0) for name in (b"t", b"u"))
    for key in (stays, goes):
        coordinator.shards[0].run(lambda machine, key=key: machine.initialize(key, 0, 0, lambda _: None))
    partition = elect(2, "t")
    machine = coordinator.shards[0].machine
    assert set(machine.states) == {stays, goes}
    partition.failure = None
    time.advance(1_000)
    assert set(machine.states) == {stays}
    time.advance(settings.share_coordinator_cold_partition_snapshot_interval_ms + 1_000)
    assert machine.states[stays].snapshot_epoch == 1
