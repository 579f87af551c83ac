"""Clusters of both kinds: an Ottla broker under an Apache Kafka controller and the other way round.

Replicas in both directions, a kill -9 on each side, truncation, and a controlled shutdown: at the end both have the
same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.ottla_server import OttlaServer
from tests.interop.settled import await_coordinator
from tests.support.apache_kafka import ApacheKafka

pytestmark = pytest.mark.interop

HEAD, MEMBER = 1, 2


def member_of(head: ApacheKafka, kind: type[ApacheKafka], directory: Path, node_id: int = MEMBER) -> ApacheKafka:
    """A broker without a controller, in the cluster of `head`."""
    server = kind(directory)
    server.properties |= {
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": head.properties["controller.quorum.voters"],
        "listeners": f"PLAINTEXT://127.0.0.1:{server.port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{server.port}",
    }
    # Apache Kafka looks for a group's coordinator by its own setting, whatever the topic's number of partitions is: where
    # the members differ, it knows of none for some groups, and a client that asks it alone waits for ever.
    if "offsets.topic.num.partitions" in head.properties:
        server.properties["offsets.topic.num.partitions"] = head.properties["offsets.topic.num.partitions"]
    return server


def wait_for(condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Mixed:
    def __init__(self, head: ApacheKafka, member: ApacheKafka) -> None:
        self.head, self.member = head, member
        self.servers = f"{head.bootstrap_servers},{member.bootstrap_servers}"
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        self.sent: dict[int, list[bytes]] = {0: [], 1: []}

    def create(self) -> None:
        """Partition 0 led by the head, partition 1 by the member."""
        wait_for(self._both_are_listed, "both brokers are listed")
        topic = NewTopic("t", 2, replica_assignment=[[HEAD, MEMBER], [MEMBER, HEAD]])
        self.admin.create_topics([topic])["t"].result(30)

    def _both_are_listed(self) -> bool:
        """Asks with a new client: a client that hears of one broker first drops requests when it hears of two. Either
        broker may answer, and each hears of the other at its own time.
        """
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        return len(self.admin.list_topics(timeout=60).brokers) == 2

    def partitions(self) -> dict[int, tuple[int, list[int]]]:
        try:
            found = self.admin.list_topics("t", timeout=60).topics["t"].partitions
        except Exception:  # noqa: BLE001 - whatever the client says while a server is away
            return {}
        return {index: (p.leader, sorted(p.isrs)) for index, p in found.items()}

    def in_sync(self) -> bool:
        found = self.partitions()
        return len(found) == 2 and all(isr == [HEAD, MEMBER] for _, isr in found.values())

    def led_by(self, node: int) -> bool:
        found = self.partitions()
        return len(found) == 2 and all(leader == node for leader, _ in found.values())

    def produce(self, count: int = 50) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "enable.idempotence": True})
        for number in range(count):
            for partition, sent in self.sent.items():
                value = b"%d-%d" % (partition, len(sent))
                producer.produce("t", value, partition=partition)
                sent.append(value)
            if number % 10 == 0:
                producer.flush(30)
        assert producer.flush(30) == 0

    def check(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            for partition, sent in self.sent.items():
                consumer.assign([TopicPartition("t", partition, 0)])
                found: list[bytes] = []
                deadline = time.monotonic() + 30
                while len(found) < len(sent) and time.monotonic() < deadline:
                    found += [m.value() for m in consumer.consume(200, 0.5) if m.error() is None]
                assert found == sent
                # Both kinds of broker find the group's coordinator, whichever is asked.
                await_coordinator(self.servers, "g")
                consumer.commit(offsets=[TopicPartition("t", partition, len(sent))], asynchronous=False)
        finally:
            consumer.close()

    def assert_same_bytes(self) -> None:
        """Both are stopped."""
        for partition in (0, 1):
            files = [
                [path.read_bytes() for path in sorted((server.data_dir / f"t-{partition}").glob("*.log"))]
                for server in (self.head, self.member)
            ]
            assert files[0] == files[1]
            assert any(files[0])


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("requires_apache_kafka")
@pytest.mark.parametrize("controller", ["apache", "ottla"])
def test_replicas_in_both_directions(tmp_path: Path, controller: str) -> None:
    kinds = (ApacheKafka, OttlaServer) if controller == "apache" else (OttlaServer, ApacheKafka)
    head = kinds[0](tmp_path / "head", properties={"offsets.topic.num.partitions": "2"})
    member = member_of(head, kinds[1], tmp_path / "member")
    try:
        head.start()
        member.start()
        mixed = Mixed(head, member)
        mixed.create()
        wait_for(mixed.in_sync, "both replicas in sync")
        mixed.produce()
        mixed.check()
        member.kill()
        wait_for(lambda: mixed.led_by(HEAD), "the head leads alone")
        mixed.produce()
        member.start()
        wait_for(mixed.in_sync, "the member is back in sync")
        mixed.produce()
        member.stop()
        wait_for(lambda: mixed.led_by(HEAD), "the head took over from a controlled shutdown")
        member.start()
        wait_for(mixed.in_sync, "the member is back again")
        mixed.check()
        member.stop()
        head.stop()
        mixed.assert_same_bytes()
        ottla = head if isinstance(head, OttlaServer) else member
        assert "Traceback" not in ottla.log_file.read_text(), ottla.log_tail(60)
    finally:
        member.kill()
        head.kill()
