"""The quarantine of a cluster that only lets in who logs in: it needs no login, no thread, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from ottla.broker.schemas import quarantine as module
from ottla.broker.schemas.quarantine import Quarantine
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.records import Record
from ottla.testing import Broker
from tests.security.secured import ADMIN_PASSWORD, USERS, plain_users

PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users(USERS).rstrip(";")
    + f' username="admin" password="{ADMIN_PASSWORD}";',
    "super.users": "User:admin",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
SOURCE = TopicPartition("orders", 3)
BAD = [(Record(0, 5, b"key", b"value", (("h", b"1"),)), "no such field")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(properties=PROPERTIES) as running:
        yield running


def run(broker: Broker, work: Coroutine[Any, Any, Any]) -> Any:
    loop = broker._loop
    assert loop is not None
    return asyncio.run_coroutine_threadsafe(work, loop).result(60)


def test_records_are_put_aside_on_a_sasl_only_cluster(broker: Broker) -> None:
    node = broker.node.broker
    assert node is not None
    run(broker, Quarantine(node).write("orders.quarantine", SOURCE, BAD * 3))
    log = node.replicas.get("orders.quarantine", 0).log
    assert log.high_watermark == 3
    assert log.log_end_offset == 3


def test_a_topic_that_cannot_be_written_is_refused_in_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    node = broker.node.broker
    assert node is not None
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)

    async def nobody_leads(*_arguments: object, **_options: object) -> Any:
        await asyncio.sleep(0.01)
        return module.ErrorCode.LEADER_NOT_AVAILABLE

    monkeypatch.setattr(module, "write_batch", nobody_leads)
    with pytest.raises(KafkaError, match=r"orders\.quarantine"):
        run(broker, Quarantine(node).write("orders.quarantine", SOURCE, BAD))
    with pytest.raises(KafkaError, match="internal"):
        run(broker, Quarantine(node).write("__consumer_offsets", SOURCE, BAD))


def test_so_many_writes_wait_and_no_more(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    node = broker.node.broker
    assert node is not None
    monkeypatch.setattr(module, "MAX_WRITES", 2)

    async def fill() -> None:
        quarantine = Quarantine(node)
        go_on = asyncio.Event()

        async def stuck(*_arguments: object, **_options: object) -> Any:
            await go_on.wait()
            return module.ErrorCode.NONE

        monkeypatch.setattr(module, "write_batch", stuck)
        waiting = [asyncio.ensure_future(quarantine.write("orders.quarantine", SOURCE, BAD)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(KafkaError, match="too many"):
            await quarantine.write("orders.quarantine", SOURCE, BAD)
        go_on.set()
        await asyncio.gather(*waiting)

    run(broker, fill())
