"""Members that come and go, of clients other than librdkafka: aiokafka and kafka-python, also together in one group."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AiokafkaListener
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import ConsumerRebalanceListener, KafkaConsumer

from ottla.testing import Broker
from tests.coordinator.group_clients import Ledger, await_that

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 6
_names = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"others-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


class _Listener:
    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger


class PythonListener(_Listener, ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def on_partitions_assigned(self, assigned: Any) -> None:
        self.ledger.assigned(self.name, list(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.ledger.revoked(self.name, list(revoked))


class AsyncListener(_Listener, AiokafkaListener):  # type: ignore[misc]  # aiokafka has no types
    def on_partitions_assigned(self, assigned: Any) -> None:
        self.ledger.assigned(self.name, list(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.ledger.revoked(self.name, list(revoked))


class KafkaPythonMember:
    def __init__(self, servers: str, group: str, topic: str, name: str, ledger: Ledger) -> None:
        self.name = name
        self._stop = threading.Event()
        self._arguments = (servers, group, topic, ledger)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        servers, group, topic, ledger = self._arguments
        client = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            client_id=self.name,
            heartbeat_interval_ms=300,
            session_timeout_ms=30_000,  # a stalled machine is no reason to leave
        )
        listener = PythonListener(self.name, ledger)
        while not client.partitions_for_topic(topic) and not self._stop.is_set():
            time.sleep(0.05)  # kafka-python may stop when a topic appears only after it has joined
        client.subscribe([topic], listener=listener)
        while not self._stop.is_set():
            client.poll(50)
        ledger.revoked(self.name, list(client.assignment()))
        client.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)


class AiokafkaMember(KafkaPythonMember):
    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        servers, group, topic, ledger = self._arguments
        client = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            client_id=self.name,
            heartbeat_interval_ms=300,
            session_timeout_ms=30_000,  # a stalled machine is no reason to leave
        )
        client.subscribe([topic], listener=AsyncListener(self.name, ledger))
        await client.start()
        while not self._stop.is_set():
            await client.getmany(timeout_ms=50)
        ledger.revoked(self.name, list(client.assignment()))
        await client.stop()


KINDS: dict[str, list[type[KafkaPythonMember]]] = {
    "aiokafka": [AiokafkaMember],
    "kafka-python": [KafkaPythonMember],
    "both": [AiokafkaMember, KafkaPythonMember],
}


@pytest.mark.parametrize("kinds", KINDS)
def test_members_come_and_go(broker: Broker, topic: str, kinds: str) -> None:
    ledger = Ledger()
    group = f"{topic}-group"
    made = itertools.cycle(KINDS[kinds])
    members: list[KafkaPythonMember] = []

    def even() -> bool:
        counts = ledger.counts()
        shares = [counts.get(member.name, 0) for member in members]
        return sum(shares) == PARTITIONS == sum(counts.values()) and min(shares) > 0

    try:
        for count in (1, 3):
            while len(members) < count:
                name = f"m{len(members)}"
                members.append(next(made)(broker.bootstrap_servers, group, topic, name, ledger))
                time.sleep(0.1)
            await_that(even, lambda: f"{ledger.counts()}")
        members.pop(0).close()
        await_that(even, lambda: f"{ledger.counts()}")
    finally:
        for member in members:
            member.close()
    assert ledger.violations == []
