"""Groups as real clients see them: confluent-kafka, aiokafka and kafka-python against a running broker."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaConsumer

from ottla.testing import Broker

PARTITIONS = 4
RECORDS = 40
_names = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def topic(broker: Broker, admin: AdminClient) -> str:
    """A topic with ten records in each of its four partitions."""
    name = f"topic-{next(_names)}"
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_names)}"


def consumer(broker: Broker, group: str, **options: Any) -> Consumer:
    defaults = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    defaults |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, **defaults, **named})


def read(client: Consumer, count: int, timeout_s: float = 60) -> list[str]:
    """`count` values, or what came in time."""
    values: list[str] = []
    deadline = time.monotonic() + timeout_s
    while len(values) < count and time.monotonic() < deadline:
        for message in client.consume(count - len(values), 0.2):
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    return values


def test_a_group_reads_commits_and_goes_on(broker: Broker, topic: str, group: str) -> None:
    first = consumer(broker, group)
    first.subscribe([topic])
    assert sorted(read(first, RECORDS), key=int) == [str(n) for n in range(RECORDS)]
    first.commit(asynchronous=False)
    first.close()

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"new", partition=2)
    assert producer.flush(60) == 0
    second = consumer(broker, group)
    second.subscribe([topic])
    assert read(second, 1) == ["new"]
    assert read(second, 1, timeout_s=0.3) == []
    second.close()


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_members_come_and_go(broker: Broker, topic: str, group: str, strategy: str) -> None:
    """Every partition has exactly one owner once the group is stable."""
    members = [consumer(broker, group, partition_assignment_strategy=strategy) for _ in range(3)]
    for member in members:
        member.subscribe([topic])
    settle(members)
    members.pop().close()
    settle(members)
    members.append(consumer(broker, group, partition_assignment_strategy=strategy))
    members[-1].subscribe([topic])
    settle(members)
    for member in members:
        member.close()


def settle(members: list[Consumer]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for member in members:
            member.poll(0.05)
        owned = [partition.partition for member in members for partition in member.assignment()]
        if sorted(owned) == list(range(PARTITIONS)) and all(member.assignment() for member in members):
            return
    pytest.fail(f"not settled: {[[p.partition for p in member.assignment()] for member in members]}")


def test_a_static_member_comes_back_without_a_rebalance(broker: Broker, topic: str, group: str) -> None:
    revoked: list[Any] = []
    steady = consumer(broker, group, group_instance_id="steady")
    steady.subscribe([topic], on_revoke=lambda _, partitions: revoked.append(partitions))
    restless = consumer(broker, group, group_instance_id="restless")
    restless.subscribe([topic])
    settle([steady, restless])
    before = sorted(p.partition for p in restless.assignment())
    revoked.clear()
    restless.close()
    restless = consumer(broker, group, group_instance_id="restless")
    restless.subscribe([topic])
    settle([steady, restless])
    assert sorted(p.partition for p in restless.assignment()) == before
    assert revoked == []
    steady.close()
    restless.close()


def test_a_second_process_with_the_same_instance_id_fences_the_first(broker: Broker, topic: str, group: str) -> None:
    first = consumer(broker, group, group_instance_id="only")
    first.subscribe([topic])
    settle([first])
    second = consumer(broker, group, group_instance_id="only")
    second.subscribe([topic])
    settle([second])
    deadline = time.monotonic() + 60
    error = None
    while error is None and time.monotonic() < deadline:
        message = first.poll(0.2)
        error = message.error() if message is not None and message.error() else None
    assert error is not None
    assert error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
    second.close()


def test_a_consumer_without_a_group_member_stores_offsets(broker: Broker, topic: str, group: str) -> None:
    simple = consumer(broker, group)
    offsets = [TopicPartition(topic, 0, 7, metadata="seven"), TopicPartition(topic, 3, 9)]
    simple.commit(offsets=offsets, asynchronous=False)
    committed = simple.committed([TopicPartition(topic, n) for n in range(PARTITIONS)], timeout=30)
    assert [p.offset for p in committed] == [7, -1001, -1001, 9]
    assert committed[0].metadata == "seven"
    with pytest.raises(KafkaException) as refused:
        simple.commit(offsets=[TopicPartition(topic, 0, 8, metadata="x" * 5000)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    simple.close()


def test_administration(broker: Broker, admin: AdminClient, topic: str, group: str) -> None:
    member = consumer(broker, group)
    member.subscribe([topic])
    settle([member])
    read(member, RECORDS)
    member.commit(asynchronous=False)

    listed = admin.list_consumer_groups().result(60)
    assert group in {listing.group_id for listing in listed.valid}
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert described.state == ConsumerGroupState.STABLE
    assert len(described.members) == 1
    assert sorted(p.partition for p in described.members[0].assignment.topic_partitions) == list(range(PARTITIONS))

    request_group = ConsumerGroupTopicPartitions(group)
    offsets = admin.list_consumer_group_offsets([request_group])[group].result(60).topic_partitions
    assert {p.partition: p.offset for p in offsets} == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(60)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP

    member.close()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 3)])
    admin.alter_consumer_group_offsets([moved])[group].result(60)
    offsets = admin.list_consumer_group_offsets([request_group])[group].result(60).topic_partitions
    assert {p.partition: p.offset for p in offsets}[1] == 3
    admin.delete_consumer_groups([group])[group].result(60)
    with pytest.raises(KafkaException) as gone:
        admin.delete_consumer_groups([group])[group].result(60)
    assert gone.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_aiokafka(broker: Broker, topic: str, group: str) -> None:
    async def run() -> list[str]:
        client = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await client.start()
        try:
            values: list[str] = []
            while len(values) < RECORDS:
                batches = await asyncio.wait_for(client.getmany(timeout_ms=500), 20)
                values += [record.value.decode() for records in batches.values() for record in records]
            await client.commit()
            return values
        finally:
            await client.stop()

    assert sorted(asyncio.run(run()), key=int) == [str(n) for n in range(RECORDS)]
    again = consumer(broker, group)
    committed = again.committed([TopicPartition(topic, n) for n in range(PARTITIONS)], timeout=30)
    assert [p.offset for p in committed] == [RECORDS // PARTITIONS] * PARTITIONS
    again.close()


def test_kafka_python(broker: Broker, topic: str, group: str) -> None:
    client = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=15_000,
    )
    values = [record.value.decode() for record in itertools.islice(client, RECORDS)]
    assert sorted(values, key=int) == [str(n) for n in range(RECORDS)]
    client.commit()
    client.close()


def test_groups_outlive_the_broker(tmp_path: Any) -> None:
    with Broker(directory=tmp_path) as first:
        producer = Producer({"bootstrap.servers": first.bootstrap_servers})
        for number in range(5):
            producer.produce("t", str(number).encode())
        assert producer.flush(60) == 0
        client = consumer(first, "g")
        client.subscribe(["t"])
        assert len(read(client, 3)) == 3
        client.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
        client.close()
    with Broker(directory=tmp_path) as second:
        client = consumer(second, "g")
        client.subscribe(["t"])
        assert read(client, 2) == ["3", "4"]
        client.close()
