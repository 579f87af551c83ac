"""Damaged logs, and well-formed logs with odd values: they load, and all requests are answered.

Apache Kafka gives up the whole partition at the first record that it cannot read or replay. Here that record is skipped
and logged, and the groups beside it live on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.records import _KIND_RECORDS, _schemas
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.records import SharePartitionKey
from ottla.coordinator.share.settings import ShareCoordinatorSettings
from ottla.coordinator.transactions.end_transaction import EndRequest
from ottla.coordinator.transactions.init_producer_id import InitRequest
from ottla.coordinator.transactions.listing import Filters
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.model.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.generated.group_metadata_key import GroupMetadataKey
from ottla.protocol.generated.group_metadata_value import GroupMetadataValue, MemberMetadata
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.offset_commit_key import OffsetCommitKey
from ottla.protocol.generated.offset_commit_value import OffsetCommitValue
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequestGroup
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.protocol.generated.share_snapshot_key import ShareSnapshotKey
from ottla.protocol.generated.share_snapshot_value import ShareSnapshotValue
from ottla.protocol.generated.share_update_key import ShareUpdateKey
from ottla.protocol.generated.share_update_value import ShareUpdateValue
from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from ottla.protocol.generated.sync_group_request import SyncGroupRequest
from ottla.protocol.generated.transaction_log_key import TransactionLogKey
from ottla.protocol.generated.transaction_log_value import TransactionLogValue
from ottla.protocol.primitives import Message
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.protocol.records_header import HEADER_BYTES
from tests.coordinator.virtual_world import MemoryLog, MemoryPartition, MemoryReplicas, VirtualTime, World
from tests.protocol.message_values import random_message
from tests.protocol.mutations import mutated
from tests.transactions.virtual_world import TransactionWorld

SEEDS = 25
GROUPS = ("g", "h")
MEMBERS = ("m", "n", "")
TOPIC_ID = Uuid(b"topic-id-of-odds")
CLASSIC, CONSUMER, SHARE, STREAMS = [1, 2], [3, 4, 5, 6, 7, 8, 16], list(range(10, 16)), [17, 19, 20, 21, 22, 23]
KINDS = {"classic": CLASSIC, "consumer": CONSUMER, "share": SHARE, "streams": STREAMS}
KINDS["all"] = [record_kind for kind in KINDS.values() for record_kind in kind]

Schemas = dict[int, tuple[type[Message], type[Message], int]]
Call = Callable[[], None]

GROUP_SCHEMAS: Schemas = {
    1: (OffsetCommitKey, OffsetCommitValue, 4),
    2: (GroupMetadataKey, GroupMetadataValue, 3),
    **{number: (*_schemas(number), 0) for number in _KIND_RECORDS},
}
TRANSACTION_SCHEMAS: Schemas = {0: (TransactionLogKey, TransactionLogValue, 1)}
SHARE_STATE_SCHEMAS: Schemas = {
    0: (ShareSnapshotKey, ShareSnapshotValue, 0),
    1: (ShareUpdateKey, ShareUpdateValue, 0),
}


def odd_record(chance: Random, schemas: Schemas, number: int, topic_id: Uuid) -> SimpleRecord:
    """A record of type `number` with any values, about few names so that they meet; one in three is damaged."""
    key_schema, value_schema, version = schemas[number]
    key_message = _about_few(chance, random_message(chance, key_schema, 0, nulls=False), topic_id)
    key = number.to_bytes(2, "big") + key_message.to_bytes(0)
    value: bytes | None = None
    if chance.random() < 0.9:
        value_message = _about_few(chance, random_message(chance, value_schema, version, nulls=True), topic_id)
        value = version.to_bytes(2, "big") + value_message.to_bytes(version)
    damage = chance.random()
    if damage < 0.1:
        key = mutated(chance, key)
    elif damage < 0.3 and value is not None:
        value = mutated(chance, value)
    return SimpleRecord(0, key, value)


def _about_few(chance: Random, message: Any, topic_id: Uuid) -> Any:
    for name in message.__slots__:
        value = getattr(message, name)
        if name in ("group", "group_id", "transactional_id"):
            setattr(message, name, chance.choice(GROUPS))
        elif isinstance(value, str) and (name.endswith("member_id") or name == "leader"):
            setattr(message, name, chance.choice(MEMBERS))
        elif isinstance(value, str) and "topic" in name:
            setattr(message, name, chance.choice("tu"))
        elif name.endswith("topic_id") and chance.random() < 0.8:
            setattr(message, name, topic_id)
        elif isinstance(value, list):
            for element in value:
                if hasattr(element, "__slots__"):
                    _about_few(chance, element, topic_id)
    return message


def fill(chance: Random, partition: MemoryPartition, schemas: Schemas, numbers: list[int], topic_id: Uuid) -> None:
    for _ in range(chance.choice([1, 2, 5, 12])):
        record = odd_record(chance, schemas, chance.choice(numbers), topic_id)
        partition.append_internal(build_batch([record]), now_ms=0)


def run_all(chance: Random, calls: list[Call]) -> None:
    """In any order. What is refused is refused by a KafkaError; anything else is a bug."""
    chance.shuffle(calls)
    for call in calls:
        try:
            call()
        except KafkaError:
            continue


@pytest.mark.parametrize("kind", KINDS)
def test_groups(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(SEEDS):
        chance = Random(f"{kind} {seed}")
        world = World(seed=seed)
        topic_id = world.set_topic("t", 3)
        fill(chance, world.partition(), GROUP_SCHEMAS, KINDS[kind], topic_id)
        world.restart()
        calls = [call for group in GROUPS for call in group_calls(world, chance, group)]
        calls += [
            call for group in GROUPS for member in (*MEMBERS, "x") for call in calls_of(world, chance, group, member)
        ]
        run_all(chance, calls)
    assert "event_failed" not in capsys.readouterr().err


def group_calls(world: World, chance: Random, group: str) -> list[Call]:
    coordinator, answers = world.coordinator, list[Any]()
    return [
        lambda: coordinator.describe_group(6, group, answers.append),
        lambda: coordinator.describe_consumer_group(group, answers.append),
        lambda: coordinator.describe_streams_group(group, answers.append),
        lambda: coordinator.share.describe(group, answers.append),
        lambda: coordinator.list_groups([], [], answers.append),
        lambda: coordinator.fetch_offsets(
            OffsetFetchRequestGroup(group, topics=None), answers.append, require_stable=False
        ),
        lambda: coordinator.delete_group(group, answers.append),
        lambda: world.time.advance(chance.choice([1_000, 60_000, 4_000_000])),
        lambda: void(world.set_topic("t", len(world.topics["t"].partitions) + 1)),
    ]


def calls_of(world: World, chance: Random, group: str, member: str) -> list[Call]:
    coordinator, answers = world.coordinator, list[Any]()
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest(group, 10_000, 10_000, member, None, "consumer", protocols)
    generation = chance.choice([0, 1])
    leave = LeaveGroupRequest(group, members=[MemberIdentity(member)])
    return [
        lambda: coordinator.join(Caller("c", "/h", chance.choice([3, 5, 9])), join, answers.append),
        lambda: coordinator.sync(SyncGroupRequest(group, generation, member), answers.append),
        lambda: coordinator.heartbeat(HeartbeatRequest(group, generation, member), answers.append),
        lambda: coordinator.leave(leave, answers.append),
        lambda: beat(world, chance, group, member or "q"),
        lambda: beat(world, chance, group, member or "q"),
    ]


def beat(world: World, chance: Random, group: str, member: str) -> None:
    """In the words of the group as it is, mostly with the epoch that the member has."""
    coordinator, caller, answers = world.coordinator, Caller("c", "/h", 1), list[Any]()
    existing = world.machine().groups.get(group)
    present = getattr(existing, "members", {}).get(member)
    epoch = getattr(present, "member_epoch", 0) if chance.random() < 0.7 else chance.choice([0, -1, -2])
    kind = existing.kind.name if existing is not None else chance.choice(["CONSUMER", "SHARE", "STREAMS"])
    if kind == "SHARE":
        coordinator.share.heartbeat(
            caller, ShareGroupHeartbeatRequest(group, member, epoch, None, ["t"]), answers.append
        )
    elif kind == "STREAMS":
        streams = StreamsGroupHeartbeatRequest(
            group, member, epoch, rebalance_timeout_ms=1_000, process_id="p",
            active_tasks=[], standby_tasks=[], warmup_tasks=[],
        )  # fmt: skip
        coordinator.streams_heartbeat(caller, streams, answers.append)
    else:
        consumer = ConsumerGroupHeartbeatRequest(group, member, epoch, None, None, 60_000, ["t"], None, None, [])
        coordinator.consumer_heartbeat(caller, consumer, answers.append)


def void(_: object) -> None:
    """For a call whose value nobody needs."""


def test_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(SEEDS):
        chance = Random(f"transactions {seed}")
        world = TransactionWorld(lambda _end, _partition: ErrorCode.NONE)
        fill(chance, world.partition, TRANSACTION_SCHEMAS, [0], TOPIC_ID)
        world.restart()
        run_all(chance, [call for name in GROUPS for call in transaction_calls(world, chance, name)])
    assert "event_failed" not in capsys.readouterr().err


def transaction_calls(world: TransactionWorld, chance: Random, name: str) -> list[Call]:
    coordinator, answers = world.coordinator, list[Any]()
    held = world.transactions.get(name)
    producer_id, epoch = (held.producer_id, held.producer_epoch) if held else (5, 0)
    end = EndRequest(name, producer_id, epoch, committed=chance.random() < 0.5, transaction_version=2)
    added = frozenset({TopicPartition("t", 0)})
    return [
        lambda: coordinator.init_producer_id(InitRequest(name, 60_000), answers.append),
        lambda: coordinator.describe(name, answers.append),
        lambda: coordinator.add_partitions(name, producer_id, epoch, added, 2, answers.append),
        lambda: coordinator.end(end, answers.append),
        lambda: coordinator.list_transactions(Filters(), answers.append),
        lambda: world.time.advance(chance.choice([1_000, 60_000, 4_000_000])),
    ]


class PrunedPartition(MemoryPartition):
    def delete_records_before(self, offset: int) -> None:
        self.log.log_start_offset = offset


def test_share_state(capsys: pytest.CaptureFixture[str]) -> None:
    registration = PartitionRegistration((1,), (1,), 1, 1, 1)
    state = TopicImage(SHARE_GROUP_STATE_TOPIC, Uuid(b"share-state-id.."), {0: registration})
    topic = TopicImage("t", TOPIC_ID, dict.fromkeys(range(300), registration))
    image = MetadataImage(
        topics_by_id={state.id: state, topic.id: topic}, topics_by_name={state.name: state, topic.name: topic}
    )
    settings = ShareCoordinatorSettings(share_coordinator_state_topic_num_partitions=1)
    for seed in range(SEEDS):
        chance = Random(f"share {seed}")
        time, replicas = VirtualTime(), MemoryReplicas()
        partition = PrunedPartition(0, MemoryLog(), 1)
        fill(chance, partition, SHARE_STATE_SCHEMAS, [0, 1], TOPIC_ID)
        replicas.by_name[SHARE_GROUP_STATE_TOPIC] = {0: partition}
        coordinator = ShareCoordinator(settings, time, time, replicas)  # type: ignore[arg-type]
        coordinator.on_metadata(MetadataDelta(reloaded=True), image)
        keys = [*coordinator.shards[0].machine.states, SharePartitionKey("g", TOPIC_ID, 0)]
        passing: list[Call] = [lambda time=time: time.advance(4_000_000)]  # type: ignore[misc]
        run_all(chance, passing + [call for key in keys for call in share_calls(coordinator, key)])
    assert "event_failed" not in capsys.readouterr().err


def share_calls(coordinator: ShareCoordinator, key: SharePartitionKey) -> list[Call]:
    answers = list[Any]()
    heard = answers.append
    return [
        lambda: coordinator.run(key, lambda machine: machine.read(key, 3, heard), heard),
        lambda: coordinator.run(key, lambda machine: machine.summary(key, heard), heard),
        lambda: coordinator.run(key, lambda machine: machine.initialize(key, 1, 0, heard), heard),
        lambda: coordinator.run(key, lambda machine: machine.delete(key, heard), heard),
    ]


def test_a_batch_with_damaged_bytes_costs_itself_only() -> None:
    """A log whose batches cannot be separated any more is not loaded: the coordinator answers NOT_COORDINATOR."""
    world = World()
    for group in "abc":
        value = OffsetCommitValue(offset=7)
        key = b"\0\1" + OffsetCommitKey(group, "t", 0).to_bytes(0)
        world.partition().append_internal(build_batch([SimpleRecord(0, key, b"\0\4" + value.to_bytes(4))]), now_ms=0)
    first, last, raw = world.logs[0].batches[1]
    world.logs[0].batches[1] = first, last, raw[:HEADER_BYTES] + b"\xff" * (len(raw) - HEADER_BYTES)
    world.restart()
    assert [world.machine().offsets.get(group, "t", 0) is not None for group in "abc"] == [True, False, True]
    world.logs[0].batches[1] = first, last, raw[:8] + b"\0\0\0\1" + raw[12:]
    world.restart()
    answers: list[Any] = []
    world.time.advance(0)
    world.coordinator.delete_group("a", answers.append)
    assert answers[0].code is ErrorCode.NOT_COORDINATOR


def group_value(protocol: str | None, *members: MemberMetadata) -> bytes:
    return b"\0\3" + GroupMetadataValue("consumer", 1, protocol, "m", 0, list(members)).to_bytes(3)


def with_groups(values: dict[str, bytes]) -> World:
    world = World()
    for group, value in values.items():
        key = b"\0\2" + GroupMetadataKey(group).to_bytes(0)
        world.partition().append_internal(build_batch([SimpleRecord(0, key, value)]), now_ms=0)
    world.restart()
    return world


def test_a_member_that_a_record_names_twice_votes_once() -> None:
    member = MemberMetadata("m", None, "c", "/h", 1_000, 1_000, b"", b"")
    world = with_groups({"g": group_value("range", member, member)})
    answers: list[Any] = []
    for _ in range(2):
        world.time.advance(5_000)  # its session ends, and the group is empty again
        protocols = [JoinGroupRequestProtocol("roundrobin", b"")]
        request = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
        world.coordinator.join(Caller("c", "/h", 3), request, answers.append)
        world.time.advance(5_000)
    assert answers[0].error_code == ErrorCode.NONE
    assert answers[0].protocol_name == "roundrobin"


def test_static_members_without_a_rebalance_timeout_are_waited_for_without_haste() -> None:
    """Apache Kafka's timer rings again and again at once; the loop has other things to do."""
    away = [MemberMetadata(name, name, "c", "/h", 0, 60_000, b"", b"") for name in "mn"]
    world = with_groups({"g": group_value("range", *away)})
    answers: list[Any] = []
    world.coordinator.leave(LeaveGroupRequest("g", members=[MemberIdentity("m", "m")]), answers.append)
    machine = world.machine()
    looks = 0
    for _ in range(100):
        before = len(world.time._queue)
        world.time.advance(0)
        looks += len(world.time._queue) != before
    assert machine.groups["g"].state_name == "PreparingRebalance"
    assert not [at for at, *_ in world.time._queue if at <= world.time.now]
    assert looks <= 2


def test_an_empty_group_with_a_protocol_is_upgraded() -> None:
    """Nobody supports the protocol that its record names; who joined becomes a member of the consumer group."""
    world = with_groups({"g": group_value("gone")})
    world.set_topic("t", 1)
    answers: list[Any] = []
    subscription = b"\0\0" + ConsumerProtocolSubscription(["t"]).to_bytes(0)
    protocols = [JoinGroupRequestProtocol("range", subscription)]
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
    world.coordinator.join(Caller("c", "/h", 3), join, answers.append)
    request = ConsumerGroupHeartbeatRequest("g", "x", 0, None, None, 60_000, ["t"], None, None, [])
    world.coordinator.consumer_heartbeat(Caller("c", "/h", 1), request, answers.append)
    assert sorted(answer.error_code for answer in answers) == [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS]
    assert len(world.machine().groups["g"].members) == 2
