"""A queue under load: members of a share group that come and go, each noting what it got and what it was told is done.

What must hold, whatever happens to the servers: a record that was accepted, and whose acceptance the server confirmed, is
not delivered again; and every record is accepted in the end.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from random import Random

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

FAST_GROUPS = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "3000",
    "group.share.record.lock.duration.ms": "4000",
    "group.share.delivery.count.limit": "10",
}
"""Broker settings with which a test need not wait long for anything."""
_GROUP_RESOURCE = 32


class Queue:
    def __init__(self, bootstrap_servers: str, topic: str, group: str, records: int, seed: int = 1) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic, self.group, self.records = topic, group, records
        self.accepted: set[tuple[int, int]] = set()
        self.in_doubt: set[tuple[int, int]] = set()
        """Accepted, but the answer got lost: they may come again, or not."""
        self.deliveries: Counter[tuple[int, int]] = Counter()
        self.broken: list[str] = []
        self._values: dict[tuple[int, int], bytes] = {}
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def prepare(self, partitions: int = 2, replication_factor: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for made in admin.create_topics([NewTopic(self.topic, partitions, replication_factor)]).values():
            made.result(30)
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        kind = getattr(ConfigResource.Type, "GROUP", _GROUP_RESOURCE)
        for changed in admin.incremental_alter_configs(
            [ConfigResource(kind, self.group, incremental_configs=[entry])]
        ).values():
            changed.result(30)
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5})
        for number in range(self.records):
            producer.produce(self.topic, str(number).encode(), partition=number % partitions)
        assert producer.flush(60) == 0

    @property
    def done(self) -> bool:
        with self._lock:
            return len(self.accepted | self.in_doubt) >= self.records

    def start_member(self) -> threading.Event:
        """Another member; it leaves when the event is set."""
        leave = threading.Event()
        thread = threading.Thread(target=self._work, args=(leave,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return leave

    def wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self.done and not self.broken:
            assert time.monotonic() < deadline, f"{len(self.accepted)} of {self.records} accepted"
            time.sleep(0.05)

    def wait_for_share(self, share: float, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while len(self.accepted) < self.records * share and not self.broken:
            assert time.monotonic() < deadline, f"{len(self.accepted)} of {self.records} accepted"
            time.sleep(0.02)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self.broken, self.broken[:5]
        values = sorted(int(self._values[place]) for place in self.accepted | self.in_doubt)
        assert values == list(range(self.records)), "something is lost"

    def _work(self, leave: threading.Event) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 20,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([self.topic])
            while not leave.is_set() and not self._stop.is_set():
                self._turn(consumer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            self.broken.append(f"member: {error!r}")
        finally:
            consumer.close()

    def _turn(self, consumer: ShareConsumer) -> None:
        accepted = []
        for message in consumer.poll(0.5):
            if message.error() is not None:
                continue
            place = (message.partition(), message.offset())
            with self._lock:
                self.deliveries[place] += 1
                self._values[place] = message.value()
                if place in self.accepted:
                    self.broken.append(f"{place} was accepted and came again")
            if self._random.random() < 0.1:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                consumer.acknowledge(message)
                accepted.append(place)
        try:
            outcome = consumer.commit_sync(20.0)
        except KafkaException:
            outcome = {}
        confirmed = {each.partition for each, error in outcome.items() if error is None}
        with self._lock:
            for place in accepted:
                (self.accepted if place[0] in confirmed else self.in_doubt).add(place)
