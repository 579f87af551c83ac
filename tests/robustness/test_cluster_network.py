"""Three nodes whose network fails: cut links, broken connections, delay. Nothing acknowledged is lost or doubled."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.robustness.cluster_faults import PARTITIONS, create_topic, in_sync
from tests.robustness.cluster_process import ClusterProcess, wait_for
from tests.robustness.links import Links, put_between
from tests.robustness.load import Reader, Sender


class LinkedCluster(ClusterProcess):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.links = Links(lambda: {i: p.pid for i, p in self.processes.items() if p.poll() is None})
        put_between(self.links, self.nodes.values())

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        self.links.close()


def rounds(directory: Path, kinds: list[str], seed: int) -> None:
    chance = random.Random(seed)
    with LinkedCluster(directory) as cluster:
        create_topic(cluster, "t")
        sender = Sender("s", cluster.bootstrap_servers, "t", PARTITIONS, idempotent=True, seed=seed, in_flight=1)
        reader = Reader(cluster.bootstrap_servers, [sender])
        try:
            for kind in kinds:
                node = chance.choice(list(cluster.nodes))
                sender.resume()
                time.sleep(0.5)
                if kind == "cut":
                    cluster.links.isolate(node, list(cluster.nodes))
                    time.sleep(chance.uniform(1, 13))
                elif kind == "reset":
                    for _ in range(10):
                        cluster.links.reset(chance.choice(list(cluster.nodes)))
                        time.sleep(0.2)
                else:
                    cluster.links.delay_ms = 30
                    time.sleep(3)
                cluster.links.heal()
                cluster.links.reset(node)
                sender.pause(90)
                reader.check()
                wait_for(lambda: in_sync(cluster, "t"), 90, "the replicas do not come back into the ISR")
        finally:
            sender.close()


@pytest.mark.timeout(300)
def test_a_few_network_faults(tmp_path: Path) -> None:
    rounds(tmp_path, ["reset", "cut"], seed=1)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_network_faults(tmp_path: Path) -> None:
    rounds(tmp_path, ["cut", "reset", "cut", "delay"] * 10, seed=2)
