"""How snapshot, start and failover of a controller grow with the number of partitions: measured, not judged.

The failover is that of a simulated quorum of three whose disks hold the snapshot: the simulated time until another is
active, which is the election, and the CPU time of all that happens in it, which is what grows.
"""

from __future__ import annotations

import time
import tracemalloc

import pytest

from ottla.controller.bootstrap import bootstrap_records
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import LATEST_METADATA_VERSION, default_levels
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import PartitionRecord, TopicRecord, decode_frame, encode_frame
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot import image_records
from ottla.model.ids import Uuid
from ottla.raft.snapshots import SnapshotId, decode_snapshot, encode_snapshot
from ottla.simulation.cluster import ClusterShape, SimulatedCluster
from ottla.simulation.node import LOG_DIR, SimulatedNode
from ottla.simulation.world import World

DIRECTORIES = [Uuid(bytes([200 + broker]) * 16) for broker in range(3)]


def image_of(partitions: int) -> MetadataImage:
    image = MetadataImage()
    records = [*bootstrap_records(LATEST_METADATA_VERSION, default_levels(LATEST_METADATA_VERSION))]
    for topic in range(partitions // 10):
        topic_id = Uuid((topic + 1000).to_bytes(16, "big"))
        records.append(TopicRecord(f"topic-{topic}", topic_id))
        for index in range(10):
            replicas = [1, 2, 3] if (topic + index) % 2 else [3, 1, 2]
            record = PartitionRecord(index, topic_id, replicas, list(replicas), leader=replicas[0])
            record.directories = DIRECTORIES
            records.append(record)
    replay_all(image, MetadataDelta(), records)
    return image


def measured(partitions: int) -> dict[str, float]:
    tracemalloc.start()
    image = image_of(partitions)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    began = time.process_time()
    frames = (encode_frame(record, LATEST_METADATA_VERSION) for record in image_records(image))
    data = encode_snapshot(frames, epoch=1, last_contained_timestamp=0, now_ms=0)
    written = time.process_time()
    again = MetadataImage()
    replay_all(again, MetadataDelta(), map(decode_frame, decode_snapshot(data, "measured").frames))
    loaded = time.process_time()
    assert len(again.topics_by_id) == partitions // 10
    simulated_ms, used_ms = failover(data, partitions)
    return {
        "snapshot MB": len(data) / 1e6,
        "image MB": memory / 1e6,
        "write s": written - began,
        "load s": loaded - written,
        "failover simulated ms": simulated_ms,
        "failover CPU ms": used_ms,
    }


def failover(snapshot: bytes, end_offset: int) -> tuple[float, float]:
    cluster = SimulatedCluster(World(1), ClusterShape(voters=3, observers=0))
    for node in cluster.nodes:
        node.disk.make_dirs(LOG_DIR)
        node.disk.write_atomic(f"{LOG_DIR}/{SnapshotId(end_offset, 1).file_name()}", snapshot)
        node.start()

    def active() -> SimulatedNode | None:
        return next((n for n in cluster.nodes if n.runtime is not None and n.runtime.active), None)

    def run_until_active() -> SimulatedNode:
        while (found := active()) is None:
            cluster.world.run_until(cluster.world.now_ms + 5, lambda: None)
            assert cluster.world.now_ms < 60_000
        return found

    first = run_until_active()
    cluster.world.run_until(cluster.world.now_ms + 1_000, lambda: None)
    killed_ms, began = cluster.world.now_ms, time.process_time()
    first.kill()
    second = run_until_active()
    used = time.process_time() - began
    assert second is not first
    assert second.runtime is not None
    assert len(second.runtime.state.image.topics_by_id) > 0
    return cluster.world.now_ms - killed_ms, used * 1000


@pytest.mark.parametrize(
    "partitions", [1_000, pytest.param(10_000, marks=pytest.mark.soak), pytest.param(100_000, marks=pytest.mark.soak)]
)
@pytest.mark.timeout(300)
def test_growth(partitions: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(partitions)
    with capsys.disabled():
        print(f"\n{partitions:>7} partitions: " + ", ".join(f"{name} {value:.2f}" for name, value in found.items()))
    assert found["snapshot MB"] < partitions * 200 / 1e6
