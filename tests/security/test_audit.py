"""The audit log: logins, refusals and changes are in it, secrets and values are not, and it never grows over its bound."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.broker.audit.events import TOPIC, AuditLog
from ottla.broker.audit.writer import AuditWriter
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.records import iterate_records
from ottla.testing import Broker
from tests.security.secured import PASSWORD, USERS, plain_users
from tests.security.session import Session

PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users(USERS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "connection.failed.authentication.delay.ms": "0",
    "ottla.audit.enable": "true",
}


def events(servers: str, wanted: int, seconds: float = 40) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "audit", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + seconds
    while len(found) < wanted and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value()))
    consumer.close()
    return found


@pytest.mark.timeout(180)
def test_who_did_what_from_where() -> None:
    with Broker(properties=PROPERTIES) as broker:
        port = broker.node.ports["SASL_PLAINTEXT"]
        with Session(port) as session:
            session.handshake("PLAIN")
            session.authenticate(b"\0alice\0guessed-wrong")
        with Session(port).plain("alice", PASSWORD) as session:
            session.ask(MetadataRequest([]), 9)  # not worth a record
            session.ask(CreateTopicsRequest([CreatableTopic("hers", 1, 1)], 10_000), 5)
        with Session(broker.node.ports["PLAINTEXT"]) as admin:
            admin.ask(CreateTopicsRequest([CreatableTopic("made", 1, 1)], 10_000), 5)
            resource = AlterConfigsResource(2, "made", [AlterableConfig("retention.ms", 0, "123456789")])
            admin.ask(IncrementalAlterConfigsRequest([resource]), 1)
        found = events(f"127.0.0.1:{broker.node.ports['PLAINTEXT']}", 5)
    assert [(e["event"], e["allowed"]) for e in found] == [
        ("login", False), ("login", True), ("request", False), ("request", True), ("request", True),
    ]  # fmt: skip
    assert found[1]["principal"] == "User:alice"
    assert found[1]["host"] == "127.0.0.1"
    assert found[2]["api"] == "CreateTopics"
    assert found[2]["errors"] == ["TOPIC_AUTHORIZATION_FAILED"]
    assert found[2]["resources"] == ["hers"]
    assert found[4]["api"] == "IncrementalAlterConfigs"
    text = json.dumps(found)
    for secret in (PASSWORD, "guessed-wrong", "123456789"):
        assert secret not in text


def test_the_queue_is_bounded() -> None:
    class Clock:
        def time_ms(self) -> int:
            return 0

    class Node:
        clock = Clock()
        node_id = 1

    audit = AuditLog(Node(), 10)  # type: ignore[arg-type]
    for _ in range(25):
        audit.login("User:x", "h", "L", allowed=False)
    assert len(audit._events) == 10
    assert audit._dropped == 15


@pytest.mark.timeout(180)
def test_long_client_ids_silence_nothing() -> None:
    """Sixty events with client ids of 30 KB made a batch that the topic refused, again and again."""
    with Broker(properties=PROPERTIES) as broker:
        port = broker.node.ports["SASL_PLAINTEXT"]
        with Session(port).plain("alice", PASSWORD) as session:
            for _ in range(60):
                session.ask(CreateTopicsRequest([CreatableTopic("hers", 1, 1)], 10_000), 5, client_id="x" * 30_000)
        with Session(port).plain("bob", PASSWORD) as session:
            session.ask(CreateTopicsRequest([CreatableTopic("his", 1, 1)], 10_000), 5)
        found = events(broker.bootstrap_servers, 63)
    refused = [event for event in found if event["event"] == "request" and not event["allowed"]]
    assert len(refused) == 61
    assert refused[-1]["principal"] == "User:bob"
    assert all(len(event["client_id"]) < 300 for event in refused)


class Leader:
    """A partition that takes batches of so many bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.written: list[int] = []

    def append_as_leader(self, data: bytearray, **_options: Any) -> None:
        if len(data) > self.most:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        self.written.append(len(list(iterate_records(data))))


def test_a_batch_that_is_too_large_is_split_and_one_event_dropped_last() -> None:
    leader = Leader(2_000)
    registration = SimpleNamespace(has_leader=True, leader=1)
    topic = SimpleNamespace(id=None, partitions={0: registration})
    broker: Any = SimpleNamespace(
        image=SimpleNamespace(topics_by_name={TOPIC: topic}),
        node_id=1,
        clock=SimpleNamespace(time_ms=lambda: 0),
        replicas=SimpleNamespace(get=lambda _topic, _partition: leader),
    )
    writer = AuditWriter(broker)
    queue = deque({"timestamp_ms": 0, "event": "x" * size} for size in [100] * 40 + [5_000] + [100] * 40)

    async def main() -> None:
        while queue:
            assert await writer.flush(queue)

    asyncio.run(main())
    assert sum(leader.written) == 80
    assert writer.unwritable == 1
