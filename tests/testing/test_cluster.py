"""Test brokers of several nodes: whole nodes and their links fail, and real clients go on."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.testing.conditions import until


@pytest.fixture(scope="module")
def cluster():
    with Broker(nodes=3, properties={"replica.lag.time.max.ms": "1500"}) as broker:
        yield broker


def isr(broker: Broker, topic: str, partition: int = 0) -> list[int]:
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(topic, timeout=60)
    return sorted(metadata.topics[topic].partitions[partition].isrs)


def test_a_killed_leader(cluster):
    topic = cluster.topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 2})
    leader = cluster.leader_of(topic)
    errors = []
    for number in range(20):
        if number == 10:
            cluster.faults.kill(leader)
        producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    assert producer.flush(120) == 0
    assert errors == [None] * 20
    until(lambda: cluster.leader_of(topic) != leader)
    assert [record.value for record in cluster.records(topic)] == [str(number) for number in range(20)]
    cluster.faults.restart(leader)
    until(lambda: isr(cluster, topic) == [1, 2, 3])


def test_a_cut_link(cluster):
    topic = cluster.topic(partitions=3)
    controller = cluster.controller
    leaders = {partition: cluster.leader_of(topic, partition) for partition in range(3)}
    partition, leader = next((partition, leader) for partition, leader in leaders.items() if leader != controller)
    follower = next(node for node in (1, 2, 3) if node not in {leader, controller})
    cluster.faults.partition(leader, follower)
    cluster.produce(
        topic, "x", partition=partition
    )  # only an append leaves the follower behind; two replicas are enough
    until(lambda: isr(cluster, topic, partition) == sorted([leader, controller]))
    cluster.faults.heal()
    until(lambda: isr(cluster, topic, partition) == [1, 2, 3])
    assert [record.value for record in cluster.records(topic)] == ["x"]


def test_a_topic_that_a_cut_link_keeps_from_a_node(cluster, monkeypatch):
    monkeypatch.setattr("ottla.testing.broker._METADATA_S", 1.0)
    controller = cluster.controller
    others = [node for node in (1, 2, 3) if node != controller]
    links = ", ".join(" to ".join(map(str, sorted((controller, other)))) for other in others)
    try:
        for other in others:
            cluster.faults.partition(controller, other)
        with pytest.raises(TimeoutError, match=r"has not reached node|was not created") as failure:
            cluster.topic()
    finally:
        cluster.faults.heal()
    assert f"cut links: {links}" in str(failure.value)
    monkeypatch.undo()
    assert cluster.faults.of_nodes() == ""
    until(lambda: isr(cluster, cluster.topic()) == [1, 2, 3])


def test_no_fault_acts_on_requests_between_nodes(cluster):
    """The coordinator sends the markers of a transaction to the leaders of its partitions."""
    topic = cluster.topic(partitions=6)
    with cluster.faults.delay("WriteTxnMarkers", 1) as fault:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "log_level": 2}
        producer = Producer(settings)
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(6):
            producer.produce(topic, b"x", partition=partition)
        producer.commit_transaction(60)
        assert len(until(lambda: len(rows := cluster.records(topic)) == 6 and rows)) == 6
    assert fault.count == 0


def test_a_cluster_in_a_folder_keeps_its_records(tmp_path):
    with Broker(nodes=2, directory=tmp_path) as broker:
        topic, servers = broker.topic(partitions=2), broker.bootstrap_servers
        broker.produce(topic, "x", "y")
    with Broker(nodes=2, directory=tmp_path) as broker:
        assert broker.bootstrap_servers == servers
        assert sorted(record.value for record in broker.records(topic)) == ["x", "y"]
    with pytest.raises(ValueError, match="cluster of 2 nodes, not of 3"):
        Broker(nodes=3, directory=tmp_path).start()


def test_a_number_of_nodes_out_of_range():
    with pytest.raises(ValueError, match="1 to 9 nodes"):
        Broker(nodes=10)


def test_logins():
    with Broker(auth={"alice": "secret", "bob": "more"}) as broker:
        topic = broker.topic()
        broker.produce(topic, "x")
        for user in (None, "bob"):
            settings = {**broker.client_settings(user), "group.id": f"g-{user}", "auto.offset.reset": "earliest"}
            consumer = Consumer(settings)
            consumer.subscribe([topic])
            assert [message.value() for message in consumer.consume(1, 60)] == [b"x"]
            consumer.close()
        wrong = {**broker.client_settings("alice"), "sasl.password": "wrong", "log_level": 0}
        with pytest.raises(KafkaException):
            AdminClient(wrong).list_topics(timeout=1)
    with pytest.raises(ValueError, match="quotation mark"):
        Broker(auth={"alice": 'a"b'}).start()
