"""Validation at the log: records that do not match their schema are refused or put aside by the broker itself."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.registry.instances import RegistryThread, register
from tests.support.ports import free_port

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}


class Place:
    def __init__(self, broker: Broker, url: str) -> None:
        self.broker, self.url = broker, url
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        self.id = register(url, "r", SCHEMA)[1]["id"]
        self.json_id = register(url, "j", {"type": "object", "required": ["a"]}, "JSON")[1]["id"]
        self.proto_id = register(url, "p", 'syntax = "proto2"; message M { required int32 a = 1; }', "PROTOBUF")[1][
            "id"
        ]

    def topic(self, mode: str, **more: str) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        config = {"ottla.schema.validation": mode, **more}
        self.admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(20)
        return name

    def produce(self, topic: str, values: list[bytes | None], **settings: Any) -> list[Any]:
        """What became of each: None, or its error. One batch."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 60_000, **settings})
        outcomes: list[Any] = []
        for value in values:
            producer.produce(topic, value=value, key=b"k", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(30) == 0
        return outcomes

    def consume(self, topic: str, count: int) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": uuid.uuid4().hex})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
        consumer.close()
        return found

    def end(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "x"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
        finally:
            consumer.close()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    port = free_port()
    properties = {"ottla.schema.registry.url": f"http://127.0.0.1:{port}"}
    with Broker(properties=properties) as broker, RegistryThread(broker.bootstrap_servers, at=port) as registry:
        yield Place(broker, registry.url)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


GOOD = b"\x02\x02x"
"""a = 1, b = "x"."""


@pytest.mark.timeout(180)
def test_what_matches_is_written_and_what_does_not_is_refused(place: Place) -> None:
    topic = place.topic("refuse")
    good = framed(place.id, GOOD)
    assert place.produce(topic, [good, None, good]) == [None, None, None]
    outcomes = place.produce(topic, [good, framed(place.id, b"\x02"), good])
    assert next(error.code() for error in outcomes if error is not None) == KafkaError.INVALID_RECORD
    assert place.end(topic) == 3
    for bad in (b"no frame", framed(999_999, GOOD), framed(place.id, GOOD + b"rest"), framed(place.json_id, b"{}"), framed(place.proto_id, b"\x00")):  # fmt: skip
        [error] = place.produce(topic, [bad])
        assert error.code() == KafkaError.INVALID_RECORD, bad
    assert place.produce(topic, [framed(place.json_id, b'{"a":1}'), framed(place.proto_id, b"\x00\x08\x01")]) == [
        None,
        None,
    ]
    assert place.end(topic) == 5


@pytest.mark.timeout(180)
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_what_does_not_match_is_put_aside(place: Place, codec: str) -> None:
    topic = place.topic("quarantine")
    good, bad = framed(place.id, GOOD), framed(place.id, b"\x02")
    settings = {"enable.idempotence": True, "compression.type": codec}
    producer = Producer({"bootstrap.servers": place.broker.bootstrap_servers, "linger.ms": 60_000, **settings})
    offsets: list[int] = []
    for batch in ([good, bad, good], [bad, bad], [good]):
        for value in batch:
            producer.produce(
                topic, value=value, on_delivery=lambda error, message: offsets.append(error or message.offset())
            )
        assert producer.flush(30) == 0
    assert offsets == [0, 1, 2, 3, 4, 5], "sequence numbers and offsets go on as the client counts them"
    assert [message.offset() for message in place.consume(topic, 3)] == [0, 2, 5]
    aside = place.consume(f"{topic}.quarantine", 3)
    assert [message.value() for message in aside] == [bad] * 3
    headers = dict(aside[0].headers())
    assert headers["ottla.quarantine.topic"] == topic.encode()
    assert b"not Avro" in headers["ottla.quarantine.reason"]


@pytest.mark.timeout(180)
def test_other_topics_are_not_looked_at(place: Place) -> None:
    topic = place.topic("off")
    assert place.produce(topic, [b"anything"]) == [None]


@pytest.mark.timeout(180)
def test_keys_are_checked_when_asked_for(place: Place) -> None:
    topic = place.topic("refuse", **{"ottla.schema.validation.fields": "key,value"})
    [error] = place.produce(topic, [framed(place.id, GOOD)])
    assert error.code() == KafkaError.INVALID_RECORD


@pytest.mark.timeout(180)
def test_the_setting_needs_a_registry() -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topic = NewTopic("t", 1, 1, config={"ottla.schema.validation": "refuse"})
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([topic])["t"].result(20)
        assert "ottla.schema.registry.url" in str(refused.value)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("timeout_ms", [1_500, 60_000])
def test_a_registry_that_does_not_answer_is_a_retriable_error(timeout_ms: int) -> None:
    """And the other topics go on meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = {"ottla.schema.registry.url": url, "ottla.schema.registry.timeout.ms": str(timeout_ms)}
        with Broker(properties=settings) as broker:
            place = Place.__new__(Place)
            place.broker = broker
            place.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            checked, other = place.topic("refuse"), place.topic("off")
            slow = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 4000})
            outcomes: list[Any] = []
            slow.produce(checked, framed(1, GOOD), on_delivery=lambda error, _: outcomes.append(error))
            silent.settimeout(30)
            question, _ = silent.accept()  # from here on the checked topic waits
            started = time.monotonic()
            assert place.produce(other, [b"x"], **{"linger.ms": 0}) == [None]
            assert time.monotonic() - started < 30
            slow.flush(20)
            question.close()
            assert outcomes[0].code() in {KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}
            assert place.end(checked) == 0


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_what_it_costs(place: Place) -> None:
    """Records per second of one producer, with and without; printed for docs/registry.md."""
    figures: dict[str, float] = {}
    payloads = {
        "avro": framed(place.id, GOOD),
        "json": framed(place.json_id, json.dumps({"a": 1, "b": "x" * 50}).encode()),
    }
    for kind, payload in payloads.items():
        for mode in ("off", "refuse"):
            topic = place.topic(mode)
            producer = Producer(
                {
                    "bootstrap.servers": place.broker.bootstrap_servers,
                    "linger.ms": 20,
                    "batch.size": 200_000,
                    "queue.buffering.max.messages": 500_000,
                }
            )
            place.produce(topic, [payload])
            started = time.monotonic()
            for _ in range(200_000):
                producer.produce(topic, payload)
            assert producer.flush(120) == 0
            figures[f"{kind} {mode}"] = 200_000 / (time.monotonic() - started)
    print({name: f"{figure:,.0f}/s" for name, figure in figures.items()})
