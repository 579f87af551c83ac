"""A service that is a function of a log: it reads events, keeps what it needs of them in memory, and writes what follows.

The state is never saved. Who is given a partition applies its history again up to the committed offset, without writing
anything, and goes on from there; the same events give the same state everywhere. What it writes and how far it has read
are one transaction, so each event has its outcome exactly once, whenever a worker is killed and however many there are.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

Event = dict[str, Any]
PATIENCE_MS = int(os.environ.get("PATIENCE_MS", "10000"))
"""How long a worker that died keeps its partitions, and what it had begun, from the others."""


class Machine(Protocol):
    def apply(self, event: Event) -> list[tuple[str, Event]]:
        """What follows from this event: keys and values of new ones. Only by what was applied before."""


class Service:
    """Reads `source` in the group `name` and writes to `sink`; `make` gives a fresh machine for a partition."""

    def __init__(self, servers: str, name: str, source: str, sink: str, make: Callable[[], Machine]) -> None:
        self._servers, self._source, self._sink, self._make = servers, source, sink, make
        self._machines: dict[int, Machine] = {}
        self._producer = Producer({
            "bootstrap.servers": servers, "transactional.id": f"{name}-{uuid.uuid4()}",
            "partitioner": "murmur2_random", "transaction.timeout.ms": PATIENCE_MS,
        })  # fmt: skip
        self._producer.init_transactions(30)
        self._consumer = _consumer(servers, name)
        self._consumer.subscribe([source], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        starts = consumer.committed(partitions, 30)
        for start in starts:
            machine = self._machines[start.partition] = self._make()
            for event in history(self._servers, self._source, start.partition, start.offset):
                machine.apply(event)
            start.offset = max(start.offset, 0)
        consumer.assign(starts)

    def run(self, *, stopping: Callable[[], bool], before_commit: Callable[[], None] = lambda: None) -> None:
        while not stopping():
            messages = [message for message in self._consumer.consume(50, 0.2) if message.error() is None]
            if not messages:
                continue
            self._producer.begin_transaction()
            for message in messages:
                for key, value in self._machines[message.partition() or 0].apply(_event(message)):
                    self._producer.produce(self._sink, json.dumps(value), key)
            reached = self._consumer.position(self._consumer.assignment())
            read = [place for place in reached if place.offset >= 0]
            self._producer.send_offsets_to_transaction(read, self._consumer.consumer_group_metadata(), 30)
            before_commit()
            self._producer.commit_transaction(30)
        self._consumer.close()


def history(servers: str, topic: str, partition: int, end: int) -> Iterator[Event]:
    """The committed events of a partition before the offset `end`."""
    if end <= 0:
        return
    consumer = _consumer(servers, "history")
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    try:
        while consumer.position([TopicPartition(topic, partition)])[0].offset < end:
            message = consumer.poll(1)
            if message is not None and message.error() is None and (message.offset() or 0) < end:
                yield _event(message)
    finally:
        consumer.close()


def _consumer(servers: str, group: str) -> Consumer:
    return Consumer({
        "bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed",
        "auto.offset.reset": "earliest", "session.timeout.ms": PATIENCE_MS,
    })  # fmt: skip


def _event(message: Message) -> Event:
    found: Event = json.loads(message.value() or b"{}")
    return found
