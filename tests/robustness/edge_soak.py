"""The cluster under its loads: what runs while an edge fault happens, and what is held against it afterwards."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException

from tests.robustness.cluster_faults import GapMeter
from tests.robustness.cluster_process import wait_for
from tests.robustness.edge_cluster import EdgeCluster
from tests.robustness.edge_load import Reborn, Table
from tests.robustness.edge_replicas import assert_identical, latest_values
from tests.robustness.load import Reader, Sender
from tests.robustness.read_process_write import INPUT, OUTPUT
from tests.robustness.transaction_rounds import CopyLoad

PLAIN, SOLO, WANDER, TABLE = "plain", "solo", "wander", "table"
SEGMENTS = {"internal_segment_bytes": "200000", "index_interval_bytes": "1024"}
LAYOUT = {
    PLAIN: ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], {"min_insync_replicas": "2", "flush_ms": "500", **SEGMENTS}),
    SOLO: ([[1], [2], [3], [1], [2], [3]], {"min_insync_replicas": "1", **SEGMENTS}),
    WANDER: ([[1, 2], [2, 3]], {"min_insync_replicas": "1", **SEGMENTS}),
}
REPLICATED = (PLAIN, WANDER, TABLE, INPUT, OUTPUT, Reborn.TOPIC, Reborn.LEDGER)
PATIENCE_S = 25.0
"""With workers that copy nothing; a transaction of a dead one is aborted after ten seconds."""
COMPACTED = (TABLE, Reborn.LEDGER, "__consumer_offsets", "__transaction_state")


class EdgeSoak:
    layout = LAYOUT

    def __init__(self, cluster: EdgeCluster, directory: Path, seed: int, *, workers: int = 2) -> None:
        self.cluster, self.seed = cluster, seed
        self.chance = random.Random(seed)
        for topic, (assignment, config) in self.layout.items():
            cluster.create(topic, assignment, **config)
        self.plain = [self._sender(f"plain-{i}", PLAIN, 3, seed) for i in range(2)]
        self.senders = [*self.plain, self._sender("solo", SOLO, 6, seed), self._sender("wander", WANDER, 2, seed)]
        self.reader = self._reader()
        self.table = Table(cluster, TABLE, [[1, 2, 3], [2, 3, 1], [3, 1, 2]], seed)
        self.copies = self._copy_load(directory, workers)
        self.reborn = Reborn(cluster, seed)
        self.meter = GapMeter(self.plain)
        self._running = True
        self._copying = threading.Thread(target=self._copy, daemon=True)
        self._copying.start()

    def _sender(self, name: str, topic: str, partitions: int, seed: int) -> Sender:
        servers = self.cluster.bootstrap_servers
        return Sender(name, servers, topic, partitions, idempotent=True, seed=seed, in_flight=1, burst=6, rest_s=0.02)

    def _reader(self) -> Reader:
        return Reader(self.cluster.bootstrap_servers, self.senders)

    def _copy_load(self, directory: Path, workers: int) -> CopyLoad:
        return CopyLoad(self.cluster.bootstrap_servers, directory, replicas=3, workers=workers)

    def _copy(self) -> None:
        while self._running:
            with suppress(BufferError):
                self.copies.feed(3)
            self.copies.look(0.3)
            self.copies.unstick(PATIENCE_S)

    def spread(self) -> None:
        """Some partitions of every topic into every directory, as a node in use has them."""
        for node_id in self.cluster.nodes:
            for number, (topic, partition) in enumerate(sorted(self.cluster.places(node_id))):
                target = str(self.cluster.data_dirs(node_id)[number % 3])
                self.cluster.move(node_id, topic, partition, target)
        wait_for(lambda: not self.cluster.leftovers(), 60, f"the moves do not end: {self.cluster.leftovers()}")

    def begin(self) -> None:
        for sender in self.senders:
            sender.resume()
        self.table.write(15)
        time.sleep(self.chance.uniform(0.2, 0.6))
        self.meter.take()

    def in_flight(self) -> int:
        return sum(sum(sender.sent) - sum(map(len, sender.acked)) for sender in self.senders)

    def gap(self) -> float:
        """Once acknowledgements flow again: the longest time without one since `begin`."""
        counts = [sum(map(len, sender.acked)) for sender in self.plain]

        def flows() -> bool:
            return all(sum(map(len, s.acked)) > count for s, count in zip(self.plain, counts, strict=True))

        wait_for(flows, 60, "no acknowledgement in 60 s after the fault")
        return self.meter.take()

    def verify(self) -> None:
        """Everything is there and nothing else; every replica is in sync, where it belongs, and alone there."""
        cluster = self.cluster
        self.table.write(15)
        for sender in self.senders:
            sender.pause(90)
        self.table.settle()
        self.reader.check()
        wait_for(lambda: cluster.settled(PLAIN), 60, "plain: the first replicas do not lead")
        cluster.wait_in_sync(*REPLICATED)
        self.table.check()
        self.reborn.check()
        assert cluster.offline_directories() == []
        wait_for(lambda: not cluster.leftovers(), 30, f"folders are left: {cluster.leftovers()}")
        cluster.assert_no_bug()

    def finish(self) -> str:
        """Exactly once at the output, then a clean stop and all replicas side by side."""
        self._running = False
        self._copying.join(10)
        summary = self.copies.finish(patience_s=PATIENCE_S)
        self.reader.rewind()
        self.reader.check()
        for sender in self.senders:
            sender.close()
        cluster = self.cluster
        cluster.wait_in_sync(*REPLICATED)
        assert cluster.offline_directories() == []
        rows = {topic: cluster.partitions(topic) for topic in (*REPLICATED, *COMPACTED)}
        for process in cluster.processes.values():
            process.terminate()
        for node_id in cluster.nodes:
            assert cluster.processes[node_id].wait(90) == 0, cluster.log(node_id)
        same = self._compare(rows)
        return (
            f"{self.reader.records} records once and in order; {summary}; "
            f"{same} bytes of replicas identical; "
            f"workers were stuck {self.copies.stuck} times"
        )

    def _compare(self, rows: dict[str, list]) -> int:
        same = 0
        for topic, found in rows.items():
            for row in found:
                name = f"{topic}-{row.id}"
                replicas = [path for node_id in row.replicas for path in self.cluster.folders(node_id, name)]
                assert len(replicas) == len(row.replicas), f"{name}: {replicas} for {row.replicas}"
                if topic in COMPACTED:
                    views = [latest_values(path) for path in replicas]
                    assert all(view == views[0] for view in views), f"{name}: replicas differ {replicas}"
                else:
                    same += assert_identical(replicas)
        return same

    def close(self) -> None:
        self._running = False
        self._copying.join(10)
        self.meter.close()
        for sender in self.senders:
            sender.close()
        with suppress(KafkaException):
            self.copies.close()
