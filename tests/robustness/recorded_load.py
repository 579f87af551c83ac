"""The clients of the soak, recorded: senders, the reader of everything, group members and copiers in transactions."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.robustness.cluster_process import wait_for
from tests.robustness.histories import (
    APPEND,
    COMMIT,
    FETCH_OFFSET,
    FINAL_OFFSETS,
    LOOK,
    READ,
    SNAPSHOT,
    UNKNOWN,
    History,
)
from tests.robustness.load import CLIENT, Reader, Sender, value_of
from tests.robustness.read_process_write import GROUP, INPUT, OUTPUT, PARTITIONS
from tests.robustness.transaction_rounds import CopyLoad

WATCHERS = "watchers"


def identity(value: bytes) -> str:
    """Sender, partition and number of a record of the load; a value that was never sent is its own identity."""
    try:
        name, partition, number, _ = value.split(b" ", 3)
        if value == value_of(name.decode(), int(partition), int(number)):
            return f"{name.decode()} {int(partition)} {int(number)}"
    except ValueError:
        pass
    return f"damaged {value[:40]!r}"


class RecordedSender(Sender):
    def __init__(self, name: str, servers: str, topic: str, partitions: int, *, history: History, **options: object):
        self._history = history
        super().__init__(name, servers, topic, partitions, **options)  # type: ignore[arg-type]

    def _send(self) -> None:
        at_ns, before = time.monotonic_ns(), list(self.sent)
        super()._send()
        for partition, (old, new) in enumerate(zip(before, self.sent, strict=True)):
            if new > old:
                value = f"{self.name} {partition} {old}"
                topic = self._history.topics[self.topic]
                self._history.invoke(APPEND, name=value, at_ns=at_ns, topic=topic, partition=partition, value=value)

    def _on_delivery(self, sequence: int, error: KafkaError | None, message: Message) -> None:
        operation = f"{self.name} {message.partition()} {sequence}"
        if error is not None:
            self._history.complete(operation, UNKNOWN)
        elif message.offset() is None or message.offset() < 0:
            self._history.complete(operation)
        else:
            self._history.complete(operation, offset=message.offset())
        super()._on_delivery(sequence, error, message)


class RecordedReader(Reader):
    """Its reads are settled: all senders rest, and all replicas are in sync."""

    def __init__(self, servers: str, senders: list[Sender], history: History) -> None:
        self._history = history
        self._records: dict[tuple[str, int], list[tuple[int, str]]] = {}
        super().__init__(servers, senders)

    def _read(self, consumer: Consumer) -> None:
        begun, self._records, settled = dict(self._offsets), {}, False
        operations = {
            place: self._history.invoke(
                READ, topic=self._history.topics[place[0]], partition=place[1], **{"from": offset}
            )
            for place, offset in begun.items()
        }
        try:
            super()._read(consumer)
            settled = True
        finally:
            for place, operation in operations.items():
                records = self._records.get(place, [])
                end = self._offsets[place]
                self._history.complete(operation, records=records, settled=settled, end=end)

    def _take(self, message: Message) -> None:
        place = (message.topic(), message.partition())
        self._records.setdefault(place, []).append((message.offset(), identity(message.value())))
        super()._take(message)


class Watcher:
    """A member of a group that reads the plain topic, commits after each poll and is replaced now and then."""

    def __init__(self, name: str, servers: str, topic: str, history: History) -> None:
        self.name, self.topic = name, topic
        self._history = History(history.file, name)
        self._topic_id = history.topics[topic]
        self.positions: dict[int, int] = {}
        self._assignment = 0
        self._running = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": WATCHERS,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "session.timeout.ms": 6000,
                "fetch.wait.max.ms": 50,
                "check.crcs": True,
                **CLIENT,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while self._running:
            assignment = self._assignment
            messages = [message for message in self._consumer.consume(200, 0.1) if message.error() is None]
            if assignment != self._assignment:
                self._begin_again()  # the records may be of the assignment before
            elif messages:
                self._record(messages)
                self._commit()
        self._consumer.close()
        self._history.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment += 1
        operations = [self._invoke(FETCH_OFFSET, place.partition) for place in partitions]
        committed: list[TopicPartition] = []
        while self._running and not committed:
            with suppress(KafkaException):
                rows = consumer.committed(partitions, 10)
                committed = rows if all(row.error is None for row in rows) else []
        if not committed:
            return
        for operation, place in zip(operations, committed, strict=True):
            self._history.complete(operation, offset=max(place.offset, -1))
            place.offset = self.positions[place.partition] = max(place.offset, 0)
        consumer.assign(committed)

    def _begin_again(self) -> None:
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in self.positions.items()]
        self._consumer.assign(places)

    def _on_revoke(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self.positions.clear()
        consumer.unassign()

    def _invoke(self, op: str, partition: int, **facts: object) -> str:
        return self._history.invoke(op, client=self.name, topic=self._topic_id, partition=partition, **facts)

    def _record(self, messages: list[Message]) -> None:
        """A read was invoked at its answer at the latest: nothing here depends on when it was invoked."""
        rows: dict[int, list[tuple[int, str]]] = {}
        for message in messages:
            rows.setdefault(message.partition(), []).append((message.offset(), identity(message.value())))
        for partition, records in rows.items():
            position = self.positions.get(partition)
            if position is None:
                continue  # a record of an assignment that has ended
            facts = {"from": position, "assignment": self._assignment}
            self._history.complete(self._invoke(READ, partition, **facts), records=records, settled=False)
            self.positions[partition] = records[-1][0] + 1

    def _commit(self) -> None:
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in self.positions.items()]
        operations = {place.partition: self._invoke(COMMIT, place.partition, offset=place.offset) for place in places}
        if not places:
            return
        try:
            answers = {row.partition: row.error for row in self._consumer.commit(offsets=places, asynchronous=False)}
        except KafkaException:
            answers = {}
        for partition, operation in operations.items():
            refused = partition not in answers or answers[partition] is not None
            self._history.complete(operation, UNKNOWN if refused else "ok")

    def close(self) -> None:
        self._running = False
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} does not end"


class Watchers:
    def __init__(self, servers: str, topic: str, history: History) -> None:
        self._servers, self._topic, self._history = servers, topic, history
        self._started = 0
        self.members = [self._start() for _ in range(2)]

    def _start(self) -> Watcher:
        self._started += 1
        return Watcher(f"watcher-{self._started}", self._servers, self._topic, self._history)

    def replace(self) -> None:
        self.members.pop(0).close()
        self.members.append(self._start())

    def await_read(self, ends: dict[int, int], timeout: float = 90) -> None:
        """Until the group has read everything."""

        def positions() -> dict[int, int]:
            return {
                partition: offset for member in self.members for partition, offset in dict(member.positions).items()
            }

        wait_for(lambda: positions() == ends, timeout, f"the group does not read up to {ends}")

    def close(self) -> None:
        for member in self.members:
            member.close()


class RecordedCopyLoad(CopyLoad):
    def __init__(self, servers: str, directory: Path, history: History, *, replicas: int, workers: int) -> None:
        self._history = history
        super().__init__(servers, directory, replicas=replicas, workers=workers, history=history.file)

    def look(self, seconds: float) -> None:
        before = len(self.seen)
        operation = self._history.invoke(LOOK)
        super().look(seconds)
        fresh = itertools.islice(self.seen.items(), before, None)
        self._history.complete(operation, records=[_output_row(place, value) for place, value in fresh])

    def _judge(self) -> str:
        asker = Consumer({"bootstrap.servers": self.servers, "group.id": GROUP, "log_level": 0})
        partitions = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
        offsets = {str(place.partition): max(place.offset, 0) for place in asker.committed(partitions, 20)}
        asker.close()
        self._history.complete(self._history.invoke(FINAL_OFFSETS, topic=INPUT), offsets=offsets)
        return super()._judge()

    def _read_all(self, isolation: str) -> Iterator[tuple[tuple[int, int], str]]:
        rows = list(super()._read_all(isolation))
        if isolation == "read_committed":
            operation = self._history.invoke(SNAPSHOT, topic=OUTPUT)
            self._history.complete(operation, records=[_output_row(place, value) for place, value in rows])
        yield from rows


def _output_row(place: tuple[int, int], text: str) -> tuple[int, str, int, int, int]:
    """Offset, transaction, partition, number of the input, half."""
    value = json.loads(text)
    return place[1], value["attempt"], place[0], value["n"], value["half"]
