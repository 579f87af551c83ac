"""The admin calls of each client, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as PyTopicPartition
from kafka.admin import ConfigResource as PyConfigResource
from kafka.admin import ConfigResourceType as PyConfigResourceType
from kafka.admin import NewPartitions as PyNewPartitions
from kafka.admin import NewTopic as PyNewTopic

from tests.interop.settled import await_coordinator, await_settled
from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka

pytestmark = pytest.mark.interop
TIMEOUT_S = 15
Names = Callable[[str], str]


def settled(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(TIMEOUT_S) for future in futures.values()]


def refused(future: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    code: int = caught.value.args[0].code()
    return code


def fill(server: ApacheKafka, topic: str, count: int = 10) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_confluent_kafka_topics(server: ApacheKafka, new_name: Names) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    topic = new_name("admin")
    settled(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "5000000"})]))
    assert refused(admin.create_topics([NewTopic(topic, 2, 1)])[topic]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refused(admin.create_topics([NewTopic("a b", 1, 1)])["a b"]) == KafkaError.TOPIC_EXCEPTION
    assert refused(admin.create_topics([NewTopic("x3", 1, 3)])["x3"]) == KafkaError.INVALID_REPLICATION_FACTOR
    settled(admin.create_topics([NewTopic(new_name("only-checked"), 2, 1)], validate_only=True))
    settled(admin.create_partitions([NewPartitions(topic, 3)]))
    assert refused(admin.create_partitions([NewPartitions(topic, 1)])[topic]) == KafkaError.INVALID_PARTITIONS
    await_settled(server.bootstrap_servers)

    def partitions() -> list[tuple[int, int, list[int]]]:
        (described,) = settled(admin.describe_topics(TopicCollection([topic])))
        assert not described.is_internal
        return [(p.id, p.leader.id, [r.id for r in p.isr]) for p in described.partitions]

    assert partitions() == [(n, 1, [1]) for n in range(3)]
    settled(admin.delete_topics([topic]))
    assert refused(admin.delete_topics([topic])[topic]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_kafka_configs(server: ApacheKafka, new_name: Names) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    topic = new_name("configs")
    settled(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "5000000"})]))
    where = ConfigResource(ResourceType.TOPIC, topic)

    def change(name: str, value: str | None, operation: AlterConfigOpType) -> Any:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])[resource]

    def overrides() -> dict[str, str]:
        await_settled(server.bootstrap_servers)
        (found,) = settled(admin.describe_configs([where]))
        return {name: entry.value for name, entry in found.items() if entry.source == 1}

    change("segment.ms", "60000", AlterConfigOpType.SET).result(TIMEOUT_S)
    change("cleanup.policy", "compact", AlterConfigOpType.APPEND).result(TIMEOUT_S)
    assert overrides() == {"retention.ms": "5000000", "segment.ms": "60000", "cleanup.policy": "delete,compact"}
    change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT).result(TIMEOUT_S)
    change("retention.ms", None, AlterConfigOpType.DELETE).result(TIMEOUT_S)
    assert overrides() == {"segment.ms": "60000", "cleanup.policy": "compact"}
    assert refused(change("segment.ms", "soon", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    settled(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"segment.ms": "70000"})]))
    assert overrides() == {"segment.ms": "70000"}
    (broker,) = settled(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["node.id"].value == "1"
    assert broker["node.id"].is_read_only


def test_confluent_kafka_offsets_and_cluster(server: ApacheKafka, new_name: Names) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    topic, group = new_name("offsets"), new_name("group")
    settled(admin.create_topics([NewTopic(topic, 1, 1)]))
    fill(server, topic)
    (deleted,) = settled(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    (refusal,) = admin.delete_records([TopicPartition(topic, 0, 99)]).values()
    assert refused(refusal) == KafkaError.OFFSET_OUT_OF_RANGE
    specs = (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.for_timestamp(0), OffsetSpec.for_timestamp(10**15))
    found = [settled(admin.list_offsets({TopicPartition(topic, 0): spec}))[0].offset for spec in specs]
    assert found == [4, 10, 4, -1]
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert (cluster.cluster_id, cluster.controller.id, [node.id for node in cluster.nodes]) == (CLUSTER_ID, 1, [1])
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(TIMEOUT_S)
    assert [error.code() for error in elected.values()] == [KafkaError.ELECTION_NOT_NEEDED]
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": group})
    await_coordinator(server.bootstrap_servers, group)
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group in [each.group_id for each in listed.valid]
    (described,) = settled(admin.describe_consumer_groups([group]))
    assert (described.group_id, described.state.name, described.members) == (group, "EMPTY", [])
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5)])
    settled(admin.alter_consumer_group_offsets([moved]))
    (offsets,) = settled(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(at.topic, at.offset) for at in offsets.topic_partitions] == [(topic, 5)]
    settled(admin.delete_consumer_groups([group]))
    assert refused(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND


def test_aiokafka(server: ApacheKafka, new_name: Names) -> None:
    topic = new_name("aioadmin")

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        await admin.start()
        try:
            created = await admin.create_topics([AioNewTopic(topic, 1, 1, topic_configs={"segment.ms": "60000"})])
            assert [error[:2] for error in created.topic_errors] == [(topic, 0)]
            await admin.create_partitions({topic: AioNewPartitions(3)})
            await_settled(server.bootstrap_servers)
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            assert topic in await admin.list_topics()
            where = AioConfigResource(AioConfigResourceType.TOPIC, topic)
            assert await admin.describe_configs([where])
            where = AioConfigResource(AioConfigResourceType.TOPIC, topic, {"segment.ms": "70000"})
            altered = await admin.alter_configs([where])
            assert [each[0] for each in altered[0].resources] == [0]
            assert (await admin.describe_cluster())["cluster_id"] == CLUSTER_ID
            assert isinstance(await admin.list_consumer_groups(), list)
            deleted = await admin.delete_topics([topic])
            assert [error[1] for error in deleted.topic_error_codes] == [0]
        finally:
            await admin.close()

    asyncio.run(run())


def test_kafka_python(server: ApacheKafka, new_name: Names) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    topic, group = new_name("pyadmin"), new_name("pygroup")
    admin.create_topics([PyNewTopic(topic, 1, 1, topic_configs={"segment.ms": "60000"})])
    admin.create_partitions({topic: PyNewPartitions(3)})
    await_settled(server.bootstrap_servers)
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    fill(server, topic)
    at = PyTopicPartition(topic, 0)
    assert admin.delete_records({at: 4})
    where = PyConfigResource(PyConfigResourceType.TOPIC, topic)
    assert "segment.ms" in str(admin.describe_configs([where]))
    admin.alter_configs([PyConfigResource(PyConfigResourceType.TOPIC, topic, {"segment.ms": "70000"})])
    await_settled(server.bootstrap_servers)
    assert "70000" in str(admin.describe_configs([where]))
    assert admin.describe_cluster()["cluster_id"] == CLUSTER_ID
    assert topic in str(admin.describe_log_dirs())
    assert admin.describe_metadata_quorum()
    assert admin.describe_features()
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": group})
    await_coordinator(server.bootstrap_servers, group)
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    assert group in str(admin.list_groups())
    assert "Empty" in str(admin.describe_groups([group]))
    assert "7" in str(admin.list_group_offsets([group]))
    admin.delete_groups([group])
    assert group not in str(admin.list_groups())
    admin.delete_topics([topic])
    await_settled(server.bootstrap_servers)
    assert topic not in admin.list_topics()
    admin.close()
