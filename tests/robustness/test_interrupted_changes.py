"""A topic's deletion and a reassignment under kill -9 of a broker or of the controller, at any moment.

Whatever was asked for and answered is done in the end, by whoever is there: no folder of a deleted topic is left, a moved
replica is where it was sent and nowhere else, and no record is lost on the way. What a node finds at its start and does not
own by the metadata it puts aside (`-stray`, as Apache Kafka does) and never serves again.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.reassignments import ongoing, reassign
from ottla.client.settings import client_settings
from ottla.model.errors import KafkaError
from tests.interop.ottla_server import OttlaServer
from tests.robustness.cluster_faults import active_controller
from tests.robustness.cluster_process import ClusterProcess, wait_for

PARTITIONS = 4
RECORDS = 400
PROPERTIES = {"log.segment.delete.delay.ms": "200", "log.segment.bytes": "1048576"}


def test_one_round_of_each(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, properties=PROPERTIES) as cluster:
        deletion(cluster, "gone", random.Random(1), controller=True)
        reassignment(cluster, "moved", random.Random(2), controller=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_rounds(tmp_path: Path) -> None:
    chance = random.Random(41)
    with ClusterProcess(tmp_path, properties=PROPERTIES) as cluster:
        for number in range(12):
            began = time.monotonic()
            deletion(cluster, f"gone-{number}", chance, controller=number % 3 == 0)
            print(f"deletion {number}: {time.monotonic() - began:.1f} s", flush=True)
        for number in range(12):
            began = time.monotonic()
            reassignment(cluster, f"moved-{number}", chance, controller=number % 3 == 0)
            print(f"reassignment {number}: {time.monotonic() - began:.1f} s", flush=True)
        for node_id in cluster.nodes:
            assert "Traceback" not in cluster.log(node_id)


def deletion(cluster: ClusterProcess, topic: str, chance: random.Random, *, controller: bool) -> None:
    make(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = admin.delete_topics([topic], operation_timeout=30)[topic]
    kill_and_start(cluster, chance, controller=controller)
    with suppress(KafkaException):  # its answer may have died with the controller; then it is asked for again
        asked.result(60)
    wait_for(lambda: not known(cluster, topic), 60, f"{topic} is still there")
    wait_for(lambda: not folders(cluster, topic), 60, f"folders are left: {folders(cluster, topic)}")


def reassignment(cluster: ClusterProcess, topic: str, chance: random.Random, *, controller: bool) -> None:
    """From two brokers to two, one of them new."""
    make(cluster, topic, [[1, 2]] * PARTITIONS)
    targets = {(topic, index): [3, 2] for index in range(PARTITIONS)}
    move(cluster, targets)
    kill_and_start(cluster, chance, controller=controller)
    wait_for(lambda: placed(cluster, topic, [3, 2]), 120, f"{topic} was not moved")
    places = {1: 0, 2: PARTITIONS, 3: PARTITIONS}
    wait_for(
        lambda: {node_id: len(folders(cluster, topic, node_id)) for node_id in cluster.nodes} == places,
        60,
        f"folders of {topic}: {folders(cluster, topic)}",
    )
    assert count(cluster, topic) == RECORDS


def make(cluster: ClusterProcess, topic: str, assignment: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wait_for(lambda: len(admin.list_topics(timeout=60).brokers) == 3, 60, "three brokers")
    admin.create_topics([NewTopic(topic, len(assignment), replica_assignment=assignment)])[topic].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    failures: list[object] = []
    for number in range(RECORDS):
        producer.produce(
            topic, bytes(10_000), partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert failures == []


def kill_and_start(cluster: ClusterProcess, chance: random.Random, *, controller: bool) -> None:
    victim = active_controller(cluster) if controller else chance.choice(list(cluster.nodes))
    time.sleep(chance.choice([0.0, 0.01, 0.03, 0.1, 0.3]))
    cluster.kill(victim)
    time.sleep(chance.choice([0.0, 1.0, 3.0]))
    cluster.start(victim)
    cluster.wait_up()


def move(cluster: ClusterProcess, targets: dict[tuple[str, int], list[int]]) -> None:
    with connected(cluster) as client:
        reassign(client, {key: tuple(replicas) for key, replicas in targets.items()})


def connected(cluster: ClusterProcess) -> Cluster:
    return Cluster(client_settings(cluster.bootstrap_servers))


def known(cluster: ClusterProcess, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    if topic not in admin.list_topics(timeout=60).topics:
        return False
    with suppress(KafkaException):
        admin.delete_topics([topic])[topic].result(30)
    return True


def placed(cluster: ClusterProcess, topic: str, replicas: list[int]) -> bool:
    with suppress(KafkaError, ClientError), connected(cluster) as client:
        if ongoing(client):
            return False
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    rows = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
    return all(row.replicas == replicas and sorted(row.isrs) == sorted(replicas) for row in rows)


def folders(cluster: ClusterProcess, topic: str, node_id: int | None = None) -> list[str]:
    """Also `-delete` and `-future`; not what was put aside."""
    nodes = cluster.nodes.values() if node_id is None else [cluster.nodes[node_id]]
    found = [path.name for node in nodes for path in sorted((node.directory / "data").glob(f"{topic}-*"))]
    return [name for name in found if not name.endswith("-stray")]


def count(cluster: ClusterProcess, topic: str) -> int:
    reader = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "nobody", "auto.offset.reset": "earliest"}
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found, deadline = 0, time.monotonic() + 60
    while found < RECORDS and time.monotonic() < deadline:
        found += sum(message.error() is None for message in reader.consume(500, 0.5))
    reader.close()
    return found


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    """Killed right after the answer: log.flush.start.offset.checkpoint.interval.ms is a minute."""
    server = OttlaServer(tmp_path).start()
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        for number in range(10):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        deletions = admin.delete_records([TopicPartition("t", 0, 5)])
        assert [deletion.result().low_watermark for deletion in deletions.values()] == [5]
        server.kill()
        server.start()
        consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30) == (5, 10)
        consumer.close()
    finally:
        server.kill()
