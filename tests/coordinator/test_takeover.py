"""One data folder, two servers: Apache Kafka goes on with Ottla's groups, and Ottla with Apache Kafka's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.interop.ottla_server import OttlaServer
from tests.interop.settled import await_coordinator
from tests.support.apache_kafka import ApacheKafka

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("requires_apache_kafka"),
]


@pytest.mark.parametrize(
    ("first", "second"), [(OttlaServer, ApacheKafka), (ApacheKafka, OttlaServer)], ids=["to-apache", "to-ottla"]
)
def test_groups_move_between_the_servers(first: type[ApacheKafka], second: type[ApacheKafka], tmp_path: Path) -> None:
    with first(tmp_path) as server:
        produce(server, 10)
        client = member(server)
        assert len(read(client, 10)) == 10
        client.commit(offsets=[TopicPartition("t", 0, 6, metadata="six")], asynchronous=False)
        client.close()  # a static member does not leave
        simple = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "simple"})
        await_coordinator(server.bootstrap_servers, "simple")
        simple.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
        simple.close()
        before = observe(server)
    with second(tmp_path) as server:
        assert observe(server) == before
        client = member(server)
        assert read(client, 4) == ["6", "7", "8", "9"]
        client.close()
        after = observe(server)
        # The static member has a new id and the same place.
        assert list(after["members"].values()) == list(before["members"].values())
        assert after["members"].keys() != before["members"].keys()


def produce(server: ApacheKafka, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(count):
        producer.produce("t", str(number).encode(), partition=0)
    assert producer.flush(20) == 0


def member(server: ApacheKafka) -> Consumer:
    client = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "group.instance.id": "one",
            "session.timeout.ms": 250_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    client.subscribe(["t"])
    return client


def read(client: Consumer, count: int) -> list[str]:
    values: list[str] = []
    for _ in range(100):
        values += [(message.value() or b"").decode() for message in client.consume(count - len(values), 0.3)]
        if len(values) >= count:
            break
    return values


def describe(admin: AdminClient) -> Any:
    """A server that has just started answers NOT_COORDINATOR until it leads its partitions."""
    for _ in range(100):
        try:
            return admin.describe_consumer_groups(["g"])["g"].result(20)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                raise
            time.sleep(0.2)
    pytest.fail("never became the coordinator")


def observe(server: ApacheKafka) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    described = describe(admin)
    assert described.state == ConsumerGroupState.STABLE
    offsets = {}
    for group in ("g", "simple"):
        group_offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
        offsets[group] = [(p.topic, p.partition, p.offset, p.metadata) for p in group_offsets.topic_partitions]
    return {
        "groups": sorted((g.group_id, g.state) for g in admin.list_consumer_groups().result(20).valid),
        "assignor": described.partition_assignor,
        "members": {
            m.member_id: (m.group_instance_id, m.client_id, m.host, [str(p) for p in m.assignment.topic_partitions])
            for m in described.members
        },
        "offsets": offsets,
    }
