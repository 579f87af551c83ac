"""Transactional load that can be checked: a producer that knows what it committed, aborted, or cannot know.

Each transaction writes the same number to every partition. Whatever the faults, a read_committed consumer sees all of a
committed transaction, nothing of an aborted one, and of one whose end got lost all or nothing.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.committed import await_decided


class TransactionalSender:
    def __init__(self, name: str, servers: str, topic: str, partitions: int) -> None:
        self.name, self.topic, self.partitions = name, topic, partitions
        self._servers = servers
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []
        self._number = 0
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 30_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        while self._running:
            try:
                producer.init_transactions(10)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    return self._producer()
        return producer

    def _run(self) -> None:
        producer = self._producer()
        while self._running:
            number, self._number = self._number, self._number + 1
            if not self._one(producer, number):
                producer = self._producer()

    def _one(self, producer: Producer, number: int) -> bool:
        """One transaction; whether the producer can go on."""
        try:
            producer.begin_transaction()
            for partition in range(self.partitions):
                producer.produce(self.topic, b"%s %d" % (self.name.encode(), number), partition=partition)
            producer.flush(30)
            if number % 5 == 4:
                producer.abort_transaction(30)
                self.aborted.append(number)
                return True
        except KafkaException:
            self.aborted.append(number)
            return self._abort(producer)
        return self._commit(producer, number)

    def _commit(self, producer: Producer, number: int) -> bool:
        deadline = time.monotonic() + 60
        while True:
            try:
                producer.commit_transaction(10)
            except KafkaException as error:
                reason = error.args[0]
                if reason.txn_requires_abort():
                    self.aborted.append(number)
                    return self._abort(producer)
                if reason.retriable() and time.monotonic() < deadline:
                    continue
                self.unknown.append(number)
                return False
            self.committed.append(number)
            return True

    def _abort(self, producer: Producer) -> bool:
        try:
            producer.abort_transaction(30)
        except KafkaException:
            return False
        return True

    def stop(self) -> None:
        self._running = False
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self.name} does not end"


def check(servers: str, sender: TransactionalSender) -> int:
    """How many transactions were seen."""
    await_decided(servers, sender.topic)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    seen = [_read(consumer, sender.topic, partition, sender.name) for partition in range(sender.partitions)]
    consumer.close()
    committed, unknown = set(sender.committed), set(sender.unknown)
    for partition, numbers in enumerate(seen):
        assert len(numbers) == len(set(numbers)), f"partition {partition}: twice"
        assert numbers == sorted(numbers), f"partition {partition}: out of order"
        lost, foreign = committed - set(numbers), set(numbers) - committed - unknown
        assert not lost, f"partition {partition}: committed and lost: {sorted(lost)[:10]}"
        assert not foreign, f"partition {partition}: aborted and seen: {sorted(foreign)[:10]}"
    assert all(set(numbers) == set(seen[0]) for numbers in seen), "a transaction is there in part"
    return len(seen[0])


def _read(consumer: Consumer, topic: str, partition: int, name: str) -> list[int]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            if message.error().name() == "_PARTITION_EOF":
                return found
            continue
        sender, number = message.value().split()
        if sender.decode() == name:
            found.append(int(number))
    raise AssertionError(f"{topic}-{partition}: no end of the log was reached")
