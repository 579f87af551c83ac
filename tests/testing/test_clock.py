"""`broker.clock`: what moves with the time of a test broker, shown with real clients."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from ottla.client.cluster import Cluster
from ottla.client.groups import committed_offsets, describe_group
from ottla.client.settings import client_settings
from ottla.testing import Broker, clock
from tests.testing.conditions import until


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


def cluster_of(broker: Broker) -> Cluster:
    return Cluster(client_settings(broker.bootstrap_servers))


def test_time_moves_for_the_broker_alone(broker):
    broker.clock.advance(days=2, hours=1, minutes=1, seconds=1.5)
    moved = 2 * 86_400 + 3_600 + 60 + 1.5
    assert broker.clock.time() - time.time() == pytest.approx(moved, abs=60)
    topic = broker.topic(settings={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    (record,) = broker.records(topic)
    assert record.timestamp_ms / 1000 - time.time() == pytest.approx(moved, abs=60)
    with pytest.raises(ValueError, match="forward"):
        broker.clock.advance(seconds=-1)


def test_retention(broker):
    old = broker.topic(settings={"retention.ms": "3600000"})
    kept = broker.topic(settings={"retention.ms": "86400000"})
    for topic in (old, kept):
        broker.produce(topic, "x")
    broker.clock.advance(hours=2)
    until(lambda: broker.records(old) == [])
    assert [record.value for record in broker.records(kept)] == ["x"]


def test_the_session_of_a_member_that_is_gone(broker):
    topic = broker.topic()
    broker.produce(topic, "x")
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "group.instance.id": "static",  # leaves nothing behind but its session
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    assert len(consumer.consume(1, 60)) == 1
    consumer.close()
    with cluster_of(broker) as cluster:
        assert len(describe_group(cluster, "g").members) == 1
        broker.clock.advance(seconds=20)
        assert len(describe_group(cluster, "g").members) == 1
        broker.clock.advance(seconds=30)  # session.timeout.ms is 45 s
        until(lambda: describe_group(cluster, "g").members == ())


def test_the_timeout_of_a_transaction(broker):
    topic = broker.topic()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "t",
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(60) == 0
    broker.produce(topic, "after")
    assert broker.records(topic) == []
    assert [record.value for record in broker.records(topic, committed=False)] == ["open", "after"]
    broker.clock.advance(seconds=75)
    until(lambda: [record.value for record in broker.records(topic)] == ["after"])
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_the_expiry_of_offsets(broker):
    topic = broker.topic()
    broker.produce(topic, "x")
    broker.consume(topic, 1, group="g")
    with cluster_of(broker) as cluster:
        assert committed_offsets(cluster, "g") == {(topic, 0): 1}
        broker.clock.advance(days=6)
        assert committed_offsets(cluster, "g") == {(topic, 0): 1}
        broker.clock.advance(days=2)
        until(lambda: committed_offsets(cluster, "g") == {})


def test_a_cluster_stays_together():
    """Nodes watch each other by the real time: no session of a broker ends, no replica leaves the ISR."""
    with Broker(nodes=3) as broker:
        topic = broker.topic()
        leader = broker.leader_of(topic)
        epochs = {thread.node_id: thread.node.quorum.raft.epoch for thread in broker.nodes}
        broker.clock.advance(days=30)
        broker.produce(topic, "x")
        assert broker.leader_of(topic) == leader
        assert {thread.node_id: thread.node.quorum.raft.epoch for thread in broker.nodes} == epochs
        partition = broker.node.broker.image.topics_by_name[topic].partitions[0]
        assert sorted(partition.isr) == [1, 2, 3]


def test_the_timers_of_a_paused_node_run_when_the_node_continues(broker):
    topic = broker.topic(settings={"retention.ms": "3600000"})
    broker.produce(topic, "x")
    started = time.monotonic()
    with broker.faults.paused(1):
        broker.clock.advance(hours=2)
        assert time.monotonic() - started < clock._SETTLE_S
    until(lambda: broker.records(topic) == [])
