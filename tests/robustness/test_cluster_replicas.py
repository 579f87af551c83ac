"""Replicas of a real cluster in places and at speeds: racks, throttles, two disks in each node, snapshots of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import decode_frame
from ottla.metadata.replay import replay_all
from ottla.model.ids import Uuid, uuid_from_str
from ottla.protocol.records import parse_header
from ottla.protocol.records_walk import iterate_records
from tests.robustness.cluster_faults import in_sync
from tests.robustness.cluster_process import ClusterProcess, wait_for

RACKS = {1: "a", 2: "b", 3: "c"}
VALUE = bytes(100_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Every node in a rack and with two disks; snapshots after every few records."""
    made = ClusterProcess(
        tmp_path_factory.mktemp("replicas"),
        properties={
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "metadata.log.max.record.bytes.between.snapshots": "3000",
        },
    )
    for node in made.nodes.values():
        made.add_directories(node.id, node.directory / "second")
        with node.properties.open("a") as file:
            file.write(f"broker.rack={RACKS[node.id]}\n")
    with made:
        yield made


def properties_of(directory: Path) -> dict[str, str]:
    lines = (directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def create(cluster: ClusterProcess, topic: str, assignment: list[list[int]], **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wait_for(lambda: len(admin.list_topics(timeout=60).brokers) == 3, 30, "three brokers")
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, len(assignment), replica_assignment=assignment, config=named)])[topic].result(
        30
    )


def produce(cluster: ClusterProcess, topic: str, count: int, value: bytes = b"x") -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for _ in range(count):
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def test_a_client_reads_from_the_replica_in_its_rack(cluster: ClusterProcess) -> None:
    create(cluster, "near", [[1, 2, 3]])
    produce(cluster, "near", 20)
    read_by: set[int] = set()

    def on_statistics(text: str) -> None:
        partition = json.loads(text)["topics"].get("near", {}).get("partitions", {}).get("0")
        if partition is not None:
            read_by.add(partition["broker"])

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "near",
            "client.rack": "c",
            "statistics.interval.ms": 100,
            "stats_cb": on_statistics,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition("near", 0, 0)])
        found = 0
        deadline = time.monotonic() + 60
        while (found < 20 or 3 not in read_by) and time.monotonic() < deadline:
            found += sum(message.error() is None for message in consumer.consume(100, 0.2))
    finally:
        consumer.close()
    assert found == 20
    assert 3 in read_by


def set_rate(admin: AdminClient, rate: int | None) -> None:
    """Of every node, as leader and as follower; None takes the throttle away."""
    operation = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
    for node_id in RACKS:
        entries = [
            ConfigEntry(f"{side}.replication.throttled.rate", str(rate or 0), incremental_operation=operation)
            for side in ("leader", "follower")
        ]
        resource = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=entries)
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)


def test_a_throttled_replica_catches_up_slowly_and_in_sync_ones_are_not_held(cluster: ClusterProcess) -> None:
    everybody = {
        "leader_replication_throttled_replicas": "*",
        "follower_replication_throttled_replicas": "*",
        "min_insync_replicas": "2",
    }
    create(cluster, "slow", [[1, 2, 3]], **everybody)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    set_rate(admin, 50_000)
    cluster.kill(3)
    wait_for(lambda: not in_sync(cluster, "slow"), 30, "3 is out of the ISR")
    produce(cluster, "slow", 30, VALUE)  # 3 MB, which node 2 in sync gets at once
    cluster.start(3)
    cluster.wait_up()
    began = time.monotonic()
    time.sleep(3)
    assert not in_sync(cluster, "slow"), "a minute of bytes in some seconds"
    set_rate(admin, None)
    wait_for(lambda: in_sync(cluster, "slow"), 60, "it catches up without the throttle")
    assert time.monotonic() - began >= 3


def test_the_controller_knows_on_which_disk_each_replica_is(cluster: ClusterProcess) -> None:
    create(cluster, "disks", [[1, 2, 3]] * 6)
    produce(cluster, "disks", 5)

    def found() -> dict[tuple[int, int], Uuid]:
        return {
            (node_id, index): uuid_from_str(properties_of(directory)["directory.id"])
            for node_id in RACKS
            for directory in cluster.data_dirs(node_id)
            for index in range(6)
            if (directory / f"disks-{index}").is_dir()
        }

    # A new partition's replicas count as in sync before their brokers have heard of it.
    wait_for(lambda: len(found()) == 18, 60, "every replica has its folder")
    where = found()
    assert len(set(where.values())) == 6, "both disks of all three nodes are used"

    def known() -> bool:
        topic = metadata_of(cluster.data_dirs(1)[0]).topics_by_name.get("disks")
        return topic is not None and all(
            topic.partitions[index].directory(node_id) == directory for (node_id, index), directory in where.items()
        )

    wait_for(known, 30, "AssignReplicasToDirs has told the controller")


def metadata_of(directory: Path) -> MetadataImage:
    """What a node's files say: the newest snapshot and the log after it."""
    folder = directory / "__cluster_metadata-0"
    snapshot = max(folder.glob("*.checkpoint"))
    end = int(snapshot.name.split("-")[0])
    image = MetadataImage()
    files = [snapshot, *sorted(folder.glob("*.log"))]
    for file in files:
        data, at = file.read_bytes(), 0
        while at + 61 <= len(data):
            header = parse_header(data, at)
            if at + header.size > len(data):
                break
            if not header.is_control and (file is snapshot or header.base_offset >= end):
                values = [bytes(record.value) for record in iterate_records(data[at : at + header.size])]
                replay_all(image, MetadataDelta(), map(decode_frame, values))
            at += header.size
    return image


def test_a_broker_starts_on_what_is_committed_and_not_on_its_own_snapshot(cluster: ClusterProcess) -> None:
    """Its last snapshot is older than its newest topics: their folders are no strays."""
    for number in range(6):
        create(cluster, f"new-{number}", [[3, 1, 2]])
        produce(cluster, f"new-{number}", 3)
    cluster.kill(3)
    cluster.start(3)
    cluster.wait_up()
    wait_for(lambda: all(in_sync(cluster, f"new-{number}") for number in range(6)), 60, "in sync again")
    folders = [path for directory in cluster.data_dirs(3) for path in directory.iterdir()]
    assert not [path for path in folders if path.name.endswith("-stray")]
    assert {f"new-{number}-0" for number in range(6)} <= {path.name for path in folders}
