"""Load that can be checked: senders that know what was acknowledged, and a reader that compares it with the log.

Each record says who sent it, to which partition and as which number, and its value can be computed from that. A
sender lives through the deaths of the server: what it has in flight is sent again by librdkafka, so that a server
that forgot a producer's state would append it twice.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

_FILLER = random.Random(7).randbytes(4096)
CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "log_level": 0,
}


def value_of(sender: str, partition: int, sequence: int) -> bytes:
    size = zlib.crc32(f"{sender}{sequence}".encode()) % 1500
    start = sequence % 1024
    return f"{sender} {partition} {sequence} ".encode() + _FILLER[start : start + size]


class Sender:
    """One producer and its thread. `acked[partition][sequence]` is the offset that the server answered with."""

    def __init__(
        self,
        name: str,
        servers: str,
        topic: str,
        partitions: int,
        *,
        idempotent: bool,
        seed: int,
        keys: int | None = None,
        in_flight: int = 5,
        burst: int = 20,
        rest_s: float = 0.0,
        **config: object,
    ):
        """With `keys`, only so many different keys: for a topic that is compacted. `in_flight` is 1 where leaders move:
        librdkafka gives once-ness up when a request behind a refused one is refused for its sequence. It takes a new
        epoch then, also for records of other partitions that a former leader has written and not answered for. Fewer
        than `burst` records are sent at a time, and then nothing for `rest_s`.
        """
        self._burst, self._rest_s = burst, rest_s
        self.keys = keys
        self.name, self.topic, self.partitions, self.idempotent = name, topic, partitions, idempotent
        self.sent = [0] * partitions
        self.acked: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.errors: list[str] = []
        self._random = random.Random(f"{seed} {name}")
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": idempotent,
                "acks": "all",
                "max.in.flight.requests.per.connection": in_flight if idempotent else 1,
                "queue.buffering.max.messages": 400,
                "message.timeout.ms": 120_000,
                "batch.num.messages": 30,
                "linger.ms": 2,
                "error_cb": self._on_error,
                **CLIENT,
                **config,
            }
        )
        self._running = False
        self._sending = threading.Lock()
        """Held from the question whether to send until the records are the producer's."""
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def _on_delivery(self, sequence: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(f"{self.name} {message.partition()} {sequence}: {error}")
        elif sequence in self.acked[message.partition()]:
            self.errors.append(f"{self.name} {message.partition()} {sequence}: acknowledged twice")
        else:
            self.acked[message.partition()][sequence] = message.offset()

    def _run(self) -> None:
        try:
            while not self._ended:
                self._turn()
        except KafkaException as error:  # fatal: the producer takes no more
            self.errors.append(str(error))

    def _turn(self) -> None:
        with self._sending:
            running = self._running
            if running:
                for _ in range(self._random.randrange(1, self._burst)):
                    self._send()
        self._producer.poll(self._random.choice([0.01, 0.02, 0.04]) if running else 0.005)
        if running and self._rest_s:
            time.sleep(self._rest_s)

    def _send(self) -> None:
        partition = self._random.randrange(self.partitions)
        sequence = self.sent[partition]
        try:
            self._producer.produce(
                self.topic,
                key=self.key_of(sequence),
                value=value_of(self.name, partition, sequence),
                partition=partition,
                on_delivery=partial(self._on_delivery, sequence),
            )
        except BufferError:
            self._producer.poll(0.01)
            return
        self.sent[partition] = sequence + 1

    def key_of(self, sequence: int) -> bytes:
        return str(sequence % self.keys if self.keys else sequence).encode()

    def resume(self) -> None:
        self._running = True

    def pause(self, timeout: float = 40) -> None:
        """Stop sending and wait until everything is answered."""
        with self._sending:  # else the thread might send some more when everything is answered
            self._running = False
        deadline = time.monotonic() + timeout
        while len(self._producer):
            if self.errors or time.monotonic() > deadline:
                raise AssertionError(
                    f"{self.errors} {self.name}: {len(self._producer)} records were not answered in {timeout} s"
                )
            time.sleep(0.01)

    def close(self) -> None:
        self._ended = True
        self._running = False
        self._thread.join(10)
        self._producer.purge()
        self._producer.flush(1)


def _watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The client asks once: a leader that moves under its question is an error to it, and is asked for anew here."""
    deadline = time.monotonic() + 60
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return low, high


def new_reader(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
            **CLIENT,
        }
    )


class Reader:
    """Reads the log on from where it stopped and holds it against what the senders know."""

    def __init__(self, servers: str, senders: list[Sender]) -> None:
        self._servers = servers
        self._senders = {sender.name: sender for sender in senders}
        self._by_topic: dict[str, list[Sender]] = {}
        for sender in senders:
            self._by_topic.setdefault(sender.topic, []).append(sender)
        self.records = 0
        self.duplicates = 0
        self.rewind()

    def rewind(self) -> None:
        """Forget what was read: the next `check` reads everything again."""
        self.records = self.duplicates = 0
        self._offsets: dict[tuple[str, int], int] = {}
        self._expected: dict[tuple[str, int], int] = {}
        self._found: dict[tuple[str, int], dict[int, int]] = {}
        self._again: dict[tuple[str, int, int], list[int]] = {}
        self._compared: dict[tuple[str, int], int] = {}
        for topic, senders in self._by_topic.items():
            for partition in range(senders[0].partitions):
                self._offsets[topic, partition] = 0

    def offsets(self) -> dict[tuple[str, int], int]:
        """Topic and partition -> how far they are read."""
        return dict(self._offsets)

    def check(self) -> None:
        """Everything acknowledged is there, once, in order, without gaps. All senders are paused."""
        consumer = new_reader(self._servers)
        try:
            self._read(consumer)
        finally:
            consumer.close()
        for sender in self._senders.values():
            self._compare(sender)

    def _read(self, consumer: Consumer) -> None:
        ends = {}
        for topic, partition in self._offsets:
            low, high = _watermarks(consumer, topic, partition)
            assert low == 0, f"{topic}-{partition} starts at {low}"
            assert high >= self._offsets[topic, partition], f"{topic}-{partition} became shorter: {high}"
            ends[topic, partition] = high
        consumer.assign([TopicPartition(t, p, offset) for (t, p), offset in self._offsets.items()])
        deadline = time.monotonic() + 40
        while any(self._offsets[key] < end for key, end in ends.items()):
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                self._take(message)
            assert time.monotonic() < deadline, f"read {self._offsets} of {ends} only"

    def _take(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        where = f"{topic}-{partition}@{offset}"
        assert offset == self._offsets[topic, partition], f"{where}: expected {self._offsets[topic, partition]}"
        self._offsets[topic, partition] = offset + 1
        name, claimed_partition, text, _ = message.value().split(b" ", 3)
        sender, sequence = self._senders[name.decode()], int(text)
        assert int(claimed_partition) == partition, where
        assert message.value() == value_of(sender.name, partition, sequence), f"{where}: the value is damaged"
        expected = self._expected.get((sender.name, partition), 0)
        if sequence < expected:
            assert not sender.idempotent, f"{where}: {sender.name} {sequence} is there twice"
            self.duplicates += 1
            self._again.setdefault((sender.name, partition, sequence), []).append(offset)
        else:
            assert sequence == expected, f"{where}: {sender.name} {sequence}, but {expected} is missing"
            self._expected[sender.name, partition] = sequence + 1
            self._found.setdefault((sender.name, partition), {})[sequence] = offset
        self.records += 1

    def _compare(self, sender: Sender) -> None:
        assert sender.errors == []
        for partition, acked in enumerate(sender.acked):
            assert len(acked) == sender.sent[partition], f"{sender.name}: not everything was answered"
            found = self._found.get((sender.name, partition), {})
            first = self._compared.get((sender.name, partition), 0)
            for sequence in range(first, len(acked)):
                offset, at = acked[sequence], found.get(sequence)
                assert at is not None, f"{sender.name} {partition} {sequence} was acknowledged at {offset} and is lost"
                # librdkafka may not learn the offset of a record whose first answer was lost (None then).
                if offset is not None and offset != at:
                    again = self._again.get((sender.name, partition, sequence), [])
                    assert offset in again, (
                        f"{sender.name} {partition} {sequence}: acknowledged at {offset}, is at {at}"
                    )
            self._compared[sender.name, partition] = len(acked)


class CompactedReader:
    """Reads a compacted topic of one sender: each key's last value is there, and nothing that was not sent."""

    def __init__(self, servers: str, sender: Sender) -> None:
        self._servers = servers
        self._sender = sender
        self.kept = 0

    def check(self) -> None:
        assert self._sender.errors == []
        consumer = new_reader(self._servers)
        self.kept = 0
        try:
            for partition in range(self._sender.partitions):
                self._check_partition(consumer, partition)
        finally:
            consumer.close()

    def _check_partition(self, consumer: Consumer, partition: int) -> None:
        sender = self._sender
        low, high = consumer.get_watermark_offsets(TopicPartition(sender.topic, partition), timeout=20)
        assert high == sender.sent[partition], (
            f"{sender.topic}-{partition} ends at {high}, {sender.sent[partition]} sent"
        )
        consumer.assign([TopicPartition(sender.topic, partition, low)])
        latest: dict[bytes, int] = {}
        previous = -1
        deadline = time.monotonic() + 40
        while previous < high - 1:  # the last record is never cleaned away
            assert time.monotonic() < deadline, f"{sender.topic}-{partition}: read up to {previous} of {high}"
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset > previous
                previous = offset
                # One producer, nothing lost: a record's offset is its sequence.
                assert message.value() == value_of(sender.name, partition, offset), (
                    f"{sender.topic}-{partition}@{offset}"
                )
                latest[message.key()] = offset
                self.kept += 1
        sent = sender.sent[partition]
        assert latest == {
            sender.key_of(sequence): sequence for sequence in range(max(0, sent - (sender.keys or 0)), sent)
        }
