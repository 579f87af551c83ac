"""Deliveries on a running broker: locks that end, members whose connection breaks, the delivery limit, transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.testing import Broker
from tests.coordinator.share_exchanges import ACCEPT, RELEASE, RENEW, acknowledge, beating, fetch
from tests.interop.differential.pair import Request, Side
from tests.interop.differential.servers import Address
from tests.share.queue_load import FAST_GROUPS

pytestmark = [pytest.mark.timeout(120)]

_GROUP_RESOURCE = 32


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    limits = {"group.share.min.record.lock.duration.ms": "1000", "group.share.record.lock.duration.ms": "1500"}
    with Broker(properties={**FAST_GROUPS, **limits}) as running:
        yield running


class Member:
    """A member with a connection of its own."""

    def __init__(self, broker: Broker, group: str, name: str) -> None:
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        self.side = Side(Address("ottla", port, 0, Path(), Path()))
        self.group, self.name, self.epoch = group, name, 0

    def _ask(self, request: Request, version: int) -> Any:
        message = request(self.side) if callable(request) else request
        self.side.send(message, version)
        return self.side.receive(message.API_KEY, version)

    def join(self, topic: str) -> None:
        self._ask(FindCoordinatorRequest("", 0, [self.group]), 6)  # makes the coordinator's topic
        epoch, deadline = 0, time.monotonic() + 30
        while True:
            answer = self._ask(beating(self.group, epoch, None if epoch else [topic], self.name), 1)
            assert time.monotonic() < deadline, answer
            if not answer.error_code:
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return
            time.sleep(0.05)

    def read(self, topic: str, wait_ms: int = 5_000, **options: Any) -> list[tuple[int, int, int]]:
        request = fetch(
            self.group, self.epoch, topic if self.epoch == 0 else None, member=self.name, max_wait_ms=wait_ms, **options
        )
        answer = self._ask(request, 2)
        assert answer.error_code == 0, answer
        self.epoch += 1
        rows = [row for each in answer.responses for row in each.partitions]
        assert not any(row.error_code for row in rows), rows
        return [
            (each.first_offset, each.last_offset, each.delivery_count) for row in rows for each in row.acquired_records
        ]

    def say(self, topic: str, *batches: tuple[int, int, list[int]], renew: bool = False) -> int:
        answer = self._ask(acknowledge(self.group, self.epoch, topic, list(batches), member=self.name, renew=renew), 2)
        assert answer.error_code == 0, answer
        self.epoch += 1
        return int(answer.responses[0].partitions[0].error_code)


def topic_with(broker: Broker, name: str, group: str, records: int, **settings: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1)]).values():
        made.result(30)
    wanted = {"share.auto.offset.reset": "earliest", **{key.replace("_", "."): text for key, text in settings.items()}}
    entries = [ConfigEntry(key, text, incremental_operation=AlterConfigOpType.SET) for key, text in wanted.items()]
    kind = getattr(ConfigResource.Type, "GROUP", _GROUP_RESOURCE)
    for changed in admin.incremental_alter_configs([ConfigResource(kind, group, incremental_configs=entries)]).values():
        changed.result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
    for number in range(records):
        producer.produce(name, str(number).encode())
    assert producer.flush(30) == 0
    return name


def test_a_lock_ends_unless_it_is_renewed(broker: Broker) -> None:
    topic = topic_with(broker, "locks", "locks", 6, share_record_lock_duration_ms="4000")
    one, two = (Member(broker, "locks", name) for name in ("one", "two"))
    one.join(topic)
    assert one.read(topic, share_acquire_mode=1, max_records=2) == [(0, 1, 1)]
    assert two.read(topic, share_acquire_mode=1, max_records=4) == [(2, 5, 1)]
    for _ in range(5):
        time.sleep(1)  # the lock lasts 4 s: what is renewed stays with its member
        assert one.say(topic, (0, 0, [RENEW]), renew=True) == 0
    again = {number: count for first, last, count in one.read(topic) for number in range(first, last + 1)}
    assert again == dict.fromkeys(range(1, 6), 2)
    assert one.say(topic, (0, 5, [ACCEPT])) == 0
    assert two.read(topic, wait_ms=300) == []
    for member in (one, two):
        member.side.close()


def test_a_member_whose_connection_breaks_gives_everything_back(broker: Broker) -> None:
    topic = topic_with(broker, "broken", "broken", 5, share_record_lock_duration_ms="60000")
    one, two = (Member(broker, "broken", name) for name in ("one", "two"))
    one.join(topic)
    assert one.read(topic) == [(0, 4, 1)]
    one.side.close()
    assert two.read(topic) == [(0, 4, 2)]
    two.side.close()


def test_a_record_that_nobody_wants_is_given_up(broker: Broker) -> None:
    topic = topic_with(broker, "unwanted", "unwanted", 1, share_delivery_count_limit="3")
    member = Member(broker, "unwanted", "one")
    member.join(topic)
    for delivery in (1, 2, 3):
        assert member.read(topic) == [(0, 0, delivery)]
        assert member.say(topic, (0, 0, [RELEASE])) == 0
    assert member.read(topic, wait_ms=300) == []
    member.side.close()


def test_aborted_records_are_left_out(broker: Broker) -> None:
    topic = topic_with(broker, "ledger", "committed", 2, share_isolation_level="read_committed")
    topic_with(broker, "ledger-2", "uncommitted", 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "ledger"})
    producer.init_transactions(30)
    for commit in (False, True):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, str(number).encode())
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    # 0-1 plain, 2-4 aborted, 5 the marker, 6-8 committed, 9 the marker
    member = Member(broker, "committed", "one")
    member.join(topic)
    got: set[int] = set()
    deadline = time.monotonic() + 20
    while not {0, 1, 6, 7, 8} <= got:
        got |= {number for first, last, _ in member.read(topic, wait_ms=500) for number in range(first, last + 1)}
        assert time.monotonic() < deadline, got
    assert not got & {2, 3, 4}
    member.side.close()
    other = Member(broker, "uncommitted", "one")
    other.join(topic)
    assert (0, 9, 1) in other.read(topic)
    other.side.close()
