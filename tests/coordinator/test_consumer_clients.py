"""Consumer groups as real clients see them: confluent-kafka with group.protocol=consumer, and with both protocols."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing import Broker
from tests.coordinator.group_clients import GroupMember, Ledger, await_balance, await_that

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 10
_names = itertools.count()
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "0",
}
"""Short intervals: a rebalance needs a few heartbeats."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "consumer": {"group_protocol": "consumer"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "eager": {"partition_assignment_strategy": "roundrobin"},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(properties=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"topic-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(60)
    produce(broker, name, range(PARTITIONS * 2))
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_names)}"


def produce(broker: Broker, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_to_ten_members_come_and_go(broker: Broker, topic: str, group: str, protocol: str) -> None:
    """At no moment does a partition have two owners, and the members' shares are even whenever they have settled."""
    ledger = Ledger()
    members: list[GroupMember] = []
    try:
        for count in (1, 2, 5, 10):
            while len(members) < count:
                name = f"m{len(members)}"
                options = PROTOCOLS[protocol]
                members.append(GroupMember(broker.bootstrap_servers, group, topic, name, ledger, **options))
            await_balance(ledger, members, PARTITIONS)
        for count in (6, 1):
            while len(members) > count:
                members.pop(0).close()
            await_balance(ledger, members, PARTITIONS)
    finally:
        for member in members:
            member.close()
    assert ledger.violations == []
    assert ledger.owners == {}


@pytest.mark.parametrize("protocol", ["consumer", "cooperative"])
def test_a_rebalance_does_not_stop_the_others(broker: Broker, topic: str, group: str, protocol: str) -> None:
    """A new member gets a few partitions; the other members lose no more than those."""
    ledger = Ledger()
    options = PROTOCOLS[protocol]
    members = [GroupMember(broker.bootstrap_servers, group, topic, f"m{i}", ledger, **options) for i in range(4)]
    try:
        await_balance(ledger, members, PARTITIONS)
        time.sleep(1)  # let a rebalance that is still under way end
        before = dict(ledger.owners)
        ledger.revocations.clear()
        members.append(GroupMember(broker.bootstrap_servers, group, topic, "late", ledger, **options))
        await_balance(ledger, members, PARTITIONS)
        moved = {partition for partition, owner in before.items() if ledger.owners[partition] != owner}
        assert {ledger.owners[partition] for partition in moved} == {"late"}
        assert len(moved) == PARTITIONS // 5
        assert sum(ledger.revocations.values()) == len(moved)
    finally:
        for member in members:
            member.close()
    assert ledger.violations == []


def test_a_group_moves_from_classic_to_consumer_and_back(broker: Broker, topic: str, group: str) -> None:
    """A rolling restart with the other protocol, while the group reads on.

    Not with librdkafka's cooperative-sticky: it keeps data of its own in the assignments, and Kafka refuses the upgrade.
    """
    ledger = Ledger()
    servers, admin = broker.bootstrap_servers, AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    classic, new = PROTOCOLS["eager"], PROTOCOLS["consumer"]

    def kind() -> Any:
        return admin.describe_consumer_groups([group])[group].result(60).type

    members = [GroupMember(servers, group, topic, f"old{i}", ledger, **classic) for i in range(3)]
    try:
        await_balance(ledger, members, PARTITIONS)
        assert kind() == ConsumerGroupType.CLASSIC
        for number in range(3):
            members.append(GroupMember(servers, group, topic, f"new{number}", ledger, **new))
            await_balance(ledger, members, PARTITIONS)
            assert kind() == ConsumerGroupType.CONSUMER
            members.pop(0).close()
            await_balance(ledger, members, PARTITIONS)
        for number in range(3):
            members.append(GroupMember(servers, group, topic, f"back{number}", ledger, **classic))
            await_balance(ledger, members, PARTITIONS)
            members.pop(0).close()
            await_balance(ledger, members, PARTITIONS)
        assert kind() == ConsumerGroupType.CLASSIC
    finally:
        for member in members:
            member.close()
    assert ledger.violations == []
    assert [error for member in members for error in member.errors] == []


DOOMED = """
import sys
from confluent_kafka import Consumer
client = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
client.subscribe([sys.argv[3]])
while len(client.assignment()) < int(sys.argv[4]):
    client.poll(0.1)
print("joined", flush=True)
while True:
    client.poll(0.1)
"""


def test_a_member_that_is_killed_is_replaced(broker: Broker, topic: str, group: str) -> None:
    """It neither leaves nor beats any more: its session ends, and the others take over."""
    command = [sys.executable, "-c", DOOMED, broker.bootstrap_servers, group, topic, str(PARTITIONS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as doomed:
        ledger = Ledger()
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "joined\n"
        living = GroupMember(broker.bootstrap_servers, group, topic, "living", ledger, group_protocol="consumer")
        try:
            await_that(lambda: ledger.counts().get("living") == PARTITIONS // 2, lambda: f"shared: {ledger.counts()}")
            doomed.kill()
            await_that(lambda: ledger.counts().get("living") == PARTITIONS, lambda: f"not taken: {ledger.counts()}")
        finally:
            doomed.kill()
            living.close()


def test_offsets_subscriptions_and_administration(broker: Broker, topic: str, group: str) -> None:
    servers = broker.bootstrap_servers
    settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"}
    client = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    client.subscribe([topic])
    values: list[str] = []

    def has_read_all() -> bool:
        values.extend(read(client))
        return len(values) == PARTITIONS * 2

    await_that(has_read_all, lambda: f"read {values}")
    client.commit(asynchronous=False)
    committed = client.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], timeout=60)
    assert [partition.offset for partition in committed] == [2] * PARTITIONS
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert described.partition_assignor == "uniform"
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(60).valid
    assert group in {listing.group_id for listing in listed}
    client.close()
    admin.delete_consumer_groups([group])[group].result(60)


def read(client: Consumer) -> list[str]:
    return [(message.value() or b"").decode() for message in client.consume(100, 0.2)]


def test_a_regular_expression(broker: Broker, group: str) -> None:
    """librdkafka sends it to the server, which resolves it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    prefix = f"expr-{next(_names)}"
    for future in admin.create_topics([NewTopic(f"{prefix}-{i}", 1, 1) for i in range(3)]).values():
        future.result(60)
    client = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "group.protocol": "consumer"})
    client.subscribe([f"^{prefix}-[01]"])
    await_that(
        lambda: client.poll(0.1) is None and {p.topic for p in client.assignment()} == {f"{prefix}-0", f"{prefix}-1"},
        lambda: f"assigned {client.assignment()}",
    )
    client.close()


def test_groups_outlive_the_broker(tmp_path: Path) -> None:
    """The same member goes on at the restarted broker, without joining again."""
    with Broker(directory=tmp_path, properties=SETTINGS) as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
        ledger = Ledger()
        members = [
            GroupMember(first.bootstrap_servers, "g", "t", f"m{i}", ledger, group_protocol="consumer") for i in range(2)
        ]
        await_balance(ledger, members, PARTITIONS)
        before = admin.describe_consumer_groups(["g"])["g"].result(60)
    try:
        with Broker(directory=tmp_path, properties={**SETTINGS, **on_port(port)}) as second:
            admin = AdminClient({"bootstrap.servers": second.bootstrap_servers})
            await_that(lambda: seen(admin) == ids(before), lambda: f"{seen(admin)} is not {ids(before)}")
            assert ledger.revocations == {} or sum(ledger.revocations.values()) <= PARTITIONS
            for member in members:
                member.close()
    finally:
        assert ledger.violations == []


def on_port(port: int) -> dict[str, str]:
    return {"listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"}


def seen(admin: AdminClient) -> set[str]:
    try:
        return ids(admin.describe_consumer_groups(["g"])["g"].result(60))
    except Exception as error:  # noqa: BLE001 - the broker is starting: anything may come
        return {str(error)}


def ids(description: Any) -> set[str]:
    return {member.member_id for member in description.members}
