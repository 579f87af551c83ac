"""confluent-kafka's share consumers on Ottla: members come and go, brokers are killed, and the queue stays a queue."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.robustness.cluster_process import ClusterProcess
from tests.share.queue_load import FAST_GROUPS, Queue

pytestmark = [pytest.mark.timeout(300)]


def kill_rounds(directory: Path, *, records: int, kills: int) -> Queue:
    server = OttlaServer(directory, properties={**FAST_GROUPS, "share.coordinator.state.topic.num.partitions": "3"})
    server.start()
    try:
        queue = Queue(server.bootstrap_servers, "work", "workers", records)
        queue.prepare()
        first = queue.start_member()
        queue.start_member()
        for number in range(kills):
            queue.wait_for_share((number + 1) / (kills + 2), 90)
            server.kill()
            server.start()
            if number == 0:
                first.set()
                queue.start_member()
        queue.wait(120)
        queue.finish()
    finally:
        server.kill()
    assert "Traceback" not in server.log_file.read_text()
    return queue


def test_what_was_accepted_does_not_come_again_after_a_kill(tmp_path: Path) -> None:
    queue = kill_rounds(tmp_path / "node", records=600, kills=1)
    assert max(queue.deliveries.values()) > 1, "nothing was ever released"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_kills(tmp_path: Path) -> None:
    kills = int(os.environ.get("KILLS", "20"))
    began = time.monotonic()
    queue = kill_rounds(tmp_path / "node", records=400 * kills, kills=kills)
    again = sum(count - 1 for count in queue.deliveries.values())
    doubt = len(queue.in_doubt - queue.accepted)
    print(
        f"\n{kills} kill -9 rounds, {queue.records} records, {again} redelivered, {doubt} with an answer that got lost: "
        f"{time.monotonic() - began:.0f} s"
    )


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_leader_that_dies_is_followed_by_one_that_knows_the_deliveries(tmp_path: Path) -> None:
    """Three nodes, the state replicated: each is killed once, with members at work."""
    settings = {
        **FAST_GROUPS,
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
    }
    with ClusterProcess(tmp_path, properties=settings) as cluster:
        queue = Queue(cluster.bootstrap_servers, "work", "workers", 6000)
        queue.prepare(partitions=3, replication_factor=3)
        for _ in range(3):
            queue.start_member()
        for number, node_id in enumerate(cluster.nodes):
            queue.wait_for_share((number + 1) / 5, 120)
            cluster.kill(node_id)
            time.sleep(3)
            cluster.start(node_id)
            cluster.wait_up()
        queue.wait(240)
        queue.finish()
        for node_id in cluster.nodes:
            assert "Traceback" not in cluster.log(node_id)
