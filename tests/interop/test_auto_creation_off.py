"""With auto.create.topics.enable=false nobody makes a topic by asking for it, and clients are told so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from ottla.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(properties={"auto.create.topics.enable": "false"}) as running:
        yield running


def test_confluent_kafka(broker: Broker) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.propagation.max.ms": 300})
    producer.produce("nowhere", b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert [error.code() for error in failed] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert producer.list_topics(timeout=60).topics == {}


def test_aiokafka(broker: Broker) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        async with producer:
            await asyncio.wait_for(producer.send_and_wait("nowhere", b"x"), 0.5)

    with pytest.raises(Exception, match=r"UnknownTopicOrPartition|Timeout|^$") as caught:  # its own choice of error
        asyncio.run(send())
    assert caught.type.__name__ in {"UnknownTopicOrPartitionError", "KafkaTimeoutError", "TimeoutError"}


def test_kafka_python(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=500)
    with pytest.raises(KafkaTimeoutError):
        producer.send("nowhere", b"x")
    producer.close(1)
