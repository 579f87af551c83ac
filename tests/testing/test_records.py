"""Topics, records and groups of a test broker."""

from __future__ import annotations

import asyncio
import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import struct_pb2
from inline_snapshot import snapshot

from ottla.client.cluster import Cluster
from ottla.client.groups import list_groups
from ottla.client.settings import client_settings
from ottla.client.topics import list_topics
from ottla.testing import Broker, WaitError

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})


@pytest.fixture(scope="module")
def broker():
    with Broker(registry=True) as broker:
        yield broker


def test_topics_have_names_and_settings_of_their_own(broker):
    first = broker.topic("orders of a test[1]", partitions=3, settings={"cleanup.policy": "compact"})
    assert first != broker.topic("orders of a test[1]")
    assert first.startswith("orders-of-a-test-1-")
    with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
        topics = {topic.name: topic for topic in list_topics(cluster)}
    assert len(topics[first].partitions) == 3


def test_records_are_decoded(broker):
    topic = broker.topic()
    broker.produce(topic, "text", {"id": 1}, [1, 2], None, b"\xff\x00", "{no json", key="k", headers={"h": "1"})
    records = broker.records(topic)
    assert [record.value for record in records] == ["text", {"id": 1}, [1, 2], None, b"\xff\x00", "{no json"]
    assert {record.key for record in records} == {"k"}
    assert records[1].value_bytes == b'{"id":1}'
    assert records[0].headers == (("h", b"1"),)
    assert [record.offset for record in records] == list(range(6))


def test_a_snapshot(broker):
    topic = broker.topic()
    broker.produce(topic, {"id": 1, "page": "/a"}, "text", key="k", headers={"source": "web"})
    assert broker.snapshot(topic) == snapshot(
        [
            {"key": "k", "value": {"id": 1, "page": "/a"}, "headers": [("source", "web")]},
            {"key": "k", "value": "text", "headers": [("source", "web")]},
        ]
    )


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_records_are_decoded_by_the_registry(broker, kind):
    topic = broker.topic()
    registry = SchemaRegistryClient({"url": broker.registry_url})
    value: object = {"id": 7}
    if kind == "avro":
        serializer = AvroSerializer(registry, AVRO)
    elif kind == "json":
        serializer = JSONSerializer(JSON, registry)
    else:
        serializer = ProtobufSerializer(struct_pb2.Value, registry, {"use.deprecated.format": False})
        value = struct_pb2.Value(string_value="seven")
    data = serializer(value, SerializationContext(topic, MessageField.VALUE))
    broker.produce(topic, data)
    (row,) = broker.snapshot(topic)
    if kind == "protobuf":
        assert "seven" in str(row["value"])
    else:
        assert row["value"] == {"id": 7}


def test_records_of_an_aborted_transaction(broker):
    topic = broker.topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    for value, end in ((b"a", "commit"), (b"b", "abort"), (b"c", "commit")):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(60) == 0  # an abort drops records that wait in the client
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(60)
    assert [record.value for record in broker.records(topic)] == ["a", "c"]
    assert [record.value for record in broker.records(topic, committed=False)] == ["a", "b", "c"]


def test_groups_and_their_lag(broker):
    topic = broker.topic(partitions=1)
    group = f"g-{topic}"
    broker.produce(topic, "1", "2", "3")
    with pytest.raises(WaitError, match=f"group '{group}' has committed nothing"):
        broker.wait_for_lag(group, timeout_s=0)
    with pytest.raises(WaitError, match=f"{topic}-0: no commit, end 3, lag 3"):
        broker.wait_for_lag(group, topic=topic, timeout_s=0)
    assert [record.value for record in broker.consume(topic, 2, group=group)] == ["1", "2"]
    with pytest.raises(WaitError, match=f"has lag 1 .*: {topic}-0: committed 2, end 3, lag 1"):
        broker.wait_for_lag(group, timeout_s=0)
    broker.wait_for_lag(group, 1)
    assert [record.value for record in broker.consume(topic, 1, group=group)] == ["3"]
    broker.wait_for_lag(group)
    with pytest.raises(WaitError, match="0 of 1 records"):
        broker.consume(topic, 1, group=group, timeout_s=0)


def test_a_namespace_is_wiped(broker):
    with broker.namespace("billing") as namespace:
        topic = namespace.topic("orders", partitions=2)
        assert topic == f"{namespace.prefix}.orders"
        broker.produce(topic, "x")
        broker.consume(topic, 1, group=namespace.name("readers"))
        with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
            assert namespace.name("readers") in {group.group_id for group in list_groups(cluster)}
    with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
        assert topic not in {row.name for row in list_topics(cluster)}
        assert namespace.name("readers") not in {group.group_id for group in list_groups(cluster)}


def test_a_broker_without_a_registry():
    with Broker() as plain, pytest.raises(RuntimeError, match="registry=True"):
        _ = plain.registry_url


def test_in_asyncio():
    async def life() -> list[str]:
        async with Broker() as broker:
            topic = await asyncio.to_thread(broker.topic)
            await asyncio.to_thread(broker.produce, topic, "x")
            return [record.value for record in await asyncio.to_thread(broker.records, topic)]

    assert asyncio.run(life()) == ["x"]


def test_more_records_than_the_queue_of_a_client(broker):
    topic = broker.topic()
    broker.produce(topic, *[b""] * 100_001)  # librdkafka's queue has room for 100,000 records
    assert broker.records(topic)[-1].offset == 100_000


def test_the_lag_has_partitions_that_a_group_never_read(broker):
    topic = broker.topic(partitions=2)
    for partition in (0, 1):
        broker.produce(topic, "x", partition=partition)
    broker.consume(topic, 1, group=topic)
    with pytest.raises(WaitError, match=r"has lag 1 .*: no commit, end 1, lag 1"):
        broker.wait_for_lag(topic, timeout_s=0)


def transaction(broker: Broker, topic: str, *values: bytes, commit: bool = True) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0  # an abort drops records that wait in the client
    if commit:
        producer.commit_transaction(60)
    return producer


def test_the_lag_of_a_topic_that_ends_with_the_marker_of_a_transaction(broker):
    topic = broker.topic()
    transaction(broker, topic, b"a", b"b")
    assert len(broker.consume(topic, 1, group=topic)) == 1
    with pytest.raises(WaitError, match=r"has lag 1 .*: committed 1, end 2, lag 1"):
        broker.wait_for_lag(topic, timeout_s=0)
    assert len(broker.consume(topic, 1, group=topic)) == 1
    broker.wait_for_lag(topic, 0)


def test_the_lag_does_not_count_what_no_reader_gets(broker):
    """Aborted records, more of them than one look reads, and an open transaction."""
    topic = broker.topic()
    broker.produce(topic, "x")
    assert len(broker.consume(topic, 1, group=topic)) == 1
    transaction(broker, topic, *[b"aborted"] * 1200, commit=False).abort_transaction(60)
    broker.wait_for_lag(topic, 0)
    producer = transaction(broker, topic, b"open", commit=False)
    broker.wait_for_lag(topic, 0)
    producer.commit_transaction(60)
    with pytest.raises(WaitError, match="has lag"):
        broker.wait_for_lag(topic, timeout_s=0)
    assert [record.value for record in broker.consume(topic, 1, group=topic)] == ["open"]
    broker.wait_for_lag(topic, 0)
