"""Three nodes of an earlier version that are replaced by this version one after the other, and back, under load."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.robustness.cluster_faults import GapMeter, active_controller, create_topic, settled
from tests.robustness.cluster_process import HOST, ClusterProcess, wait_for
from tests.robustness.load import Reader, Sender
from tests.robustness.read_process_write import INPUT, OUTPUT
from tests.robustness.transaction_rounds import CopyLoad

TOPIC, PARTITIONS = "orders", 3
INTERNAL = ("__consumer_offsets", "__transaction_state")
PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
PREPARE = """
import sys
from pathlib import Path
from ottla.server.up_cluster import PlannedNode, prepare
rows = [line.split() for line in sys.stdin]
prepare([PlannedNode(int(i), Path(folder), *map(int, ports)) for i, folder, *ports in rows], sys.argv[1])
"""
_SETTLED_S = 180
_PATIENCE_S = 30.0


class MixedCluster(ClusterProcess):
    """As the earlier version lays out and formats the nodes. A node starts with the version that `earlier` says."""

    def __init__(self, directory: Path, site: Path) -> None:
        self._site = site
        self.earlier = dict.fromkeys((1, 2, 3), True)
        super().__init__(directory, 3, PROPERTIES)

    def prepare(self) -> None:
        rows = [(n.id, n.directory, n.port, n.controller_port, n.http_port) for n in self.nodes.values()]
        done = subprocess.run(
            [sys.executable, "-c", PREPARE, HOST],
            env=self.environment(1), input="\n".join(" ".join(map(str, row)) for row in rows),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def environment(self, node_id: int) -> dict[str, str]:
        own = super().environment(node_id)
        return own | {"PYTHONPATH": str(self._site)} if self.earlier[node_id] else own

    def version(self, node_id: int) -> str:
        """Where the code of a running node is, as the system sees its environment."""
        content = Path(f"/proc/{self.processes[node_id].pid}/environ").read_bytes().split(b"\0")
        path = next(line for line in content if line.startswith(b"PYTHONPATH="))
        return path.decode().partition("=")[2]


class RollingRun:
    """The load, and the longest time without an acknowledgement for each pass over the nodes."""

    def __init__(self, cluster: MixedCluster, directory: Path) -> None:
        self.cluster = cluster
        self.gaps: dict[str, float] = {}
        create_topic(cluster, TOPIC, PARTITIONS)
        self._copies = CopyLoad(cluster.bootstrap_servers, directory, replicas=3)
        self._senders = [
            Sender(
                f"s{i}", cluster.bootstrap_servers, TOPIC, PARTITIONS, idempotent=True, seed=i, in_flight=1, rest_s=0.02
            )
            for i in range(2)
        ]
        self._reader = Reader(cluster.bootstrap_servers, self._senders)
        self._meter = GapMeter(self._senders)
        self._ended = threading.Event()
        self._feeding = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Self:
        for sender in self._senders:
            sender.resume()
        self._feeding.start()
        self._await_settled()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._feeding.join(60)
        self._meter.close()
        for sender in self._senders:
            sender.close()
        self._copies.close()

    def _feed(self) -> None:
        while not self._ended.is_set():
            self._copies.feed(4)
            self._copies.look(0.2)
            self._copies.unstick(_PATIENCE_S)

    def replace(self, name: str, *, earlier: bool) -> None:
        """Each node is stopped and started with a version, the active controller last (docs/upgrade.md)."""
        active = active_controller(self.cluster)
        self._meter.take()
        for node_id in sorted(self.cluster.nodes, key=lambda number: number == active):
            before = self._acknowledged()
            self.cluster.stop(node_id, timeout=120)
            self.cluster.earlier[node_id] = earlier
            self.cluster.start(node_id)
            self._await_settled()
            wait_for(partial(self._is_beyond, before), _SETTLED_S, "nothing is acknowledged any more")
        self.gaps[name] = round(self._meter.take(), 2)

    def _acknowledged(self) -> int:
        return sum(len(acked) for sender in self._senders for acked in sender.acked)

    def _is_beyond(self, count: int) -> bool:
        return self._acknowledged() > count

    def _await_settled(self) -> None:
        """What docs/upgrade.md asks for between two nodes: all are up, in sync, and the preferred replicas lead."""
        self.cluster.wait_up(_SETTLED_S)
        for topic in (TOPIC, INPUT, OUTPUT, *INTERNAL):
            wait_for(partial(settled, self.cluster, topic), _SETTLED_S, f"{topic} does not settle")

    def judge(self) -> str:
        """Raises AssertionError if a record is lost, doubled or torn; else figures of the run so far."""
        for sender in self._senders:
            sender.pause(120)
        self._reader.check()
        return f"{self._reader.records} records of idempotent producers, gaps {self.gaps}"

    def go_on(self) -> None:
        for sender in self._senders:
            sender.resume()

    def finish(self) -> str:
        """As `judge`, with the transactions and the group, after the last pass."""
        summary = self.judge()
        self._ended.set()
        self._feeding.join(60)
        return f"{summary}; {self._copies.finish(timeout_s=300, patience_s=_PATIENCE_S)}"


def roll(directory: Path, site: Path) -> RollingRun:
    """Three passes: a restart of the earlier version, which is the measure of the gaps, then this version, then back."""
    with MixedCluster(directory, site) as cluster, RollingRun(cluster, directory) as run:
        run.replace("restart", earlier=True)
        run.replace("upgrade", earlier=False)
        assert {cluster.version(node) for node in cluster.nodes}.isdisjoint({str(site)})
        print(run.judge(), flush=True)
        run.go_on()
        time.sleep(2)  # some load on this version alone
        run.replace("back", earlier=True)
        assert {cluster.version(node) for node in cluster.nodes} == {str(site)}
        print(run.finish(), f"load {os.getloadavg()[0]:.0f}", flush=True)
        return run
