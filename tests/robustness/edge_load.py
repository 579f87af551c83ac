"""What the edge faults are held against: a table of keys with tombstones, and topics that are deleted and made anew.

A table knows the last value of every key. Some of its keys are fleeting: written once, deleted soon after and never
written again, so that one that comes back is seen. A reborn topic tags its records with its incarnation: a reader that
sees another tag, or a group that skips a record, has met what was deleted.
"""

from __future__ import annotations

import random
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.robustness.cluster_process import wait_for
from tests.robustness.edge_cluster import EdgeCluster
from tests.robustness.edge_replicas import latest_values
from tests.robustness.load import CLIENT, new_reader

KEYS = 30
FILLER = b"." * 150
TABLE_CONFIG = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "4096",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "500",
    "min_insync_replicas": "2",
}


class Failures:
    """Records that were refused for good."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.found.append(f"{message.topic()}-{message.partition()}: {error}")


def producer_of(servers: str, **config: object) -> Producer:
    settings = {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 1,
        "message.timeout.ms": 120_000,
        "linger.ms": 2,
        "batch.num.messages": 10,
        **CLIENT,
        **config,
    }
    return Producer(settings)


def write_all(producer: Producer, failures: Failures, what: str, timeout: float = 90) -> None:
    left = producer.flush(timeout)
    assert left == 0, f"{what}: {left} records were not answered in {timeout} s"
    assert failures.found == [], f"{what}: {failures.found[:3]}"


class Table:
    """A compacted topic and its model."""

    def __init__(self, cluster: EdgeCluster, topic: str, assignment: list[list[int]], seed: int, **config: str) -> None:
        self.cluster, self.topic, self.partitions = cluster, topic, len(assignment)
        self._random = random.Random(f"{seed} {topic}")
        self.model: list[dict[bytes, bytes]] = [{} for _ in assignment]
        self._written = 0
        self._doomed: list[tuple[int, int, bytes]] = []
        """Number of the write at which a fleeting key is deleted, partition, key."""
        self._failures = Failures()
        cluster.create(topic, assignment, **{**TABLE_CONFIG, **config})
        self._producer = producer_of(cluster.bootstrap_servers)

    def write(self, count: int) -> None:
        """Hand over some records to each partition; `settle` waits for them."""
        for _ in range(count):
            for partition in range(self.partitions):
                self._write_one(partition)
            self._producer.poll(0)

    def _write_one(self, partition: int) -> None:
        self._written += 1
        while self._doomed and self._doomed[0][0] <= self._written:
            _, place, key = self._doomed.pop(0)
            self._put(place, key, None)
        if self._random.random() < 0.08:
            key = b"fleeting-%d" % self._written
            self._put(partition, key, b"%d " % self._written + FILLER)
            self._doomed.append((self._written + self._random.randrange(2, 12) * self.partitions, partition, key))
            self._doomed.sort()
        else:
            key = b"key-%d" % self._random.randrange(KEYS)
            self._put(partition, key, None if self._random.random() < 0.2 else b"%d " % self._written + FILLER)

    def _put(self, partition: int, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(
                    self.topic, key=key, value=value, partition=partition, on_delivery=self._failures.on_delivery
                )
                break
            except BufferError:
                self._producer.poll(0.05)
        if value is None:
            self.model[partition].pop(key, None)
        else:
            self.model[partition][key] = value

    def settle(self) -> None:
        write_all(self._producer, self._failures, self.topic)

    def check(self) -> None:
        """A reader finds the model, and in the end so does every replica on its disk. All is settled."""
        reader = new_reader(self.cluster.bootstrap_servers)
        try:
            for partition in range(self.partitions):
                assert_view(self._read(reader, partition), self.model[partition], f"{self.topic}-{partition}, read")
        finally:
            reader.close()
        for partition in range(self.partitions):
            for node_id in self.cluster.nodes:
                self._check_replica(node_id, partition)

    def _read(self, reader: Consumer, partition: int) -> dict[bytes, bytes]:
        deadline = time.monotonic() + 60
        while True:
            try:
                low, high = reader.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=20)
                break
            except KafkaException:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        latest: dict[bytes, bytes] = {}
        reader.assign([TopicPartition(self.topic, partition, low)])
        position = low
        while position < high:
            assert time.monotonic() < deadline, f"{self.topic}-{partition}: read up to {position} of {high}"
            for message in reader.consume(500, 0.2):
                assert message.error() is None, message.error()
                position = message.offset() + 1
                if message.value() is None:
                    latest.pop(message.key(), None)
                else:
                    latest[message.key()] = message.value()
        return latest

    def _check_replica(self, node_id: int, partition: int, timeout: float = 15) -> None:
        """Compaction goes on and exchanges files under the reader: only a difference that stays is one."""
        deadline = time.monotonic() + timeout
        while True:
            folders = self.cluster.folders(node_id, f"{self.topic}-{partition}")
            try:
                for folder in folders:
                    assert_view(latest_values(folder), self.model[partition], str(folder))
            except (FileNotFoundError, AssertionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)
            else:
                return


def assert_view(found: dict[bytes, bytes], model: dict[bytes, bytes], where: str) -> None:
    revived = sorted(found.keys() - model.keys())
    assert not revived, f"{where}: deleted keys are back: {revived[:5]}"
    lost = sorted(model.keys() - found.keys())
    assert not lost, f"{where}: keys are lost: {lost[:5]}"
    stale = [key for key, value in model.items() if found[key] != value]
    assert not stale, f"{where}: older values are back: {[(key, found[key][:12]) for key in stale[:5]]}"


class Reborn:
    """A topic with a group, and a table, that are deleted and made again under the same names."""

    TOPIC, LEDGER, GROUP = "reborn", "ledger", "reborn-readers"
    ASSIGNMENT = ([1, 2, 3], [3, 1, 2])
    LEDGER_ASSIGNMENT = ([2, 3, 1], [1, 2, 3], [3, 1, 2], [1, 3, 2])
    LAG_MS = 1500
    """No record of the ledger is compacted before: by then it is longer than where its predecessor was clean."""
    RECORDS = ((60, 20), (160, 60))
    """Of the ledger's partitions, before the first pass of compaction and before the second: every other incarnation is
    the longer one, so that a checkpoint of its predecessor lies within it, behind keys that were deleted."""

    def __init__(self, cluster: EdgeCluster, seed: int) -> None:
        self.cluster, self._seed = cluster, seed
        self._random = random.Random(f"{seed} reborn")
        self.incarnation = 0
        self.sent = [0, 0]
        self._read = [0, 0]
        self.create()
        self.fill()

    def create(self) -> None:
        self.incarnation += 1
        self.sent, self._read = [0, 0], [0, 0]
        self.cluster.create(self.TOPIC, list(self.ASSIGNMENT), min_insync_replicas="2")
        self.ledger = Table(
            self.cluster, self.LEDGER, list(self.LEDGER_ASSIGNMENT), self._seed + self.incarnation,
            min_compaction_lag_ms=str(self.LAG_MS),
        )  # fmt: skip
        self._failures = Failures()
        self._producer = producer_of(self.cluster.bootstrap_servers)

    def fill(self) -> None:
        """Enough records that an offset of an earlier incarnation would skip some, and several passes of compaction."""
        for count in self.RECORDS[self.incarnation % 2]:
            self.ledger.write(count)
            for partition in range(2):
                for _ in range(self._random.randrange(45, 90)):
                    self._send(partition)
            self.ledger.settle()
            write_all(self._producer, self._failures, self.TOPIC)
            time.sleep(self.LAG_MS / 1000 + 0.7)

    def _send(self, partition: int) -> None:
        value = b"%d %d %d" % (self.incarnation, partition, self.sent[partition])
        self._producer.produce(self.TOPIC, value, partition=partition, on_delivery=self._failures.on_delivery)
        self.sent[partition] += 1

    def read_some(self) -> None:
        """The group reads on from its commits, every record of this incarnation and no other; commits on the way."""
        consumer = self.consumer()
        consumer.subscribe([self.TOPIC])
        left = [sent - read for sent, read in zip(self.sent, self._read, strict=True)]
        limit = [read + (40 if more > 60 else more) for read, more in zip(self._read, left, strict=True)]
        deadline = time.monotonic() + 60
        try:
            while self._read[0] < limit[0] or self._read[1] < limit[1]:
                assert time.monotonic() < deadline, f"the group read {self._read} of {self.sent}"
                for message in consumer.consume(40, 0.2):
                    if message.error() is None:
                        self._take(message)
            self._commit(consumer, deadline)
        finally:
            consumer.close()

    def consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": self.GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                **CLIENT,
            }
        )

    def _take(self, message: Message) -> None:
        partition = message.partition()
        where = f"{self.TOPIC}-{partition}@{message.offset()}"
        incarnation, claimed, sequence = map(int, message.value().split())
        assert incarnation == self.incarnation, f"{where} is of incarnation {incarnation}, not {self.incarnation}"
        assert (claimed, sequence) == (partition, message.offset()), f"{where}: {message.value()!r}"
        assert sequence == self._read[partition], f"{where}: the group has skipped from {self._read[partition]}"
        self._read[partition] += 1

    def _commit(self, consumer: Consumer, deadline: float) -> None:
        offsets = [TopicPartition(self.TOPIC, partition, read) for partition, read in enumerate(self._read)]
        while True:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException:
                assert time.monotonic() < deadline, "the group cannot commit"
                time.sleep(0.2)
            else:
                return

    def delete(self) -> None:
        self.cluster.delete(self.TOPIC, self.LEDGER)

    def check(self) -> None:
        self.read_some()
        self.ledger.settle()
        self.ledger.check()

    def wait_gone(self) -> None:
        """No folder of a deleted incarnation is left but those put aside (`-stray`), as Apache Kafka does."""
        wait_for(lambda: not self.cluster.leftovers(), 30, "folders are left")
