"""Three real nodes with three log directories each, one of them on a small disk; every node can be trapped at a step.

What is asked of the cluster here (moves, reassignments, deletions) is asked over the wire, as an operator does it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    PartitionMetadata,
    ResourceType,
)

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.placements import Placement, log_dirs_of, move_log_dirs
from ottla.client.reassignments import ongoing, reassign
from ottla.client.settings import client_settings
from ottla.model.errors import KafkaError
from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.protocol.generated.describe_log_dirs_response import DescribeLogDirsResponse
from ottla.server.up.cluster import PlannedNode
from tests.robustness.cluster_process import HOST, ClusterProcess, wait_for
from tests.robustness.trapped_node import Trap, arm, disarm, sprung

PROPERTIES = {
    # A producer of a deleted topic asks for it and would make it anew, with one partition.
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.scheduler.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
SMALL_DISK = "256m"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BUG_SIGNS = ("Traceback", "request.failed", "response.failed", "connection.failed", "Exception in callback")
_LEFTOVER = re.compile(r"-(future|delete)$")


class NoMounts(Exception):
    """This machine does not permit the small disks."""


class EdgeCluster(ClusterProcess):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, properties=PROPERTIES)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        self.last_step: str | None = None
        """At which a trap caught a node last."""
        self._scanned = dict.fromkeys(self.nodes, 0)
        for node in self.nodes.values():
            self.add_directories(node.id, node.directory / "second", self.small_disk(node.id) / "logs")

    def small_disk(self, node_id: int) -> Path:
        return self.nodes[node_id].directory / "small"

    def command(self, node: PlannedNode) -> list[str]:
        return [sys.executable, "-m", "tests.robustness.trapped_node", str(node.properties)]

    # Traps

    def arm(self, node_id: int, trap: Trap) -> None:
        arm(self.nodes[node_id].properties, trap)

    def disarm(self, node_id: int) -> None:
        disarm(self.nodes[node_id].properties)

    def sprung(self, node_id: int) -> str | None:
        return sprung(self.nodes[node_id].properties)

    def caught(self, node_id: int, timeout: float = 20) -> str | None:
        """The step at which the node was caught; None, and no trap any more, when the step did not come."""
        deadline = time.monotonic() + timeout
        while (step := self.sprung(node_id)) is None:
            if time.monotonic() > deadline:
                self.disarm(node_id)
                return None
            time.sleep(0.01)
        self.last_step = step
        return step

    # Operations

    @contextmanager
    def client(self, node_id: int | None = None) -> Iterator[Cluster]:
        """`node_id`: the only node that is asked, for the others may hang."""
        quick = {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}
        servers = self.bootstrap_servers if node_id is None else f"{HOST}:{self.nodes[node_id].port}"
        with Cluster(client_settings(servers, quick)) as client:
            yield client

    def create(self, topic: str, assignment: list[list[int]], **config: str) -> None:
        named = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=named)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.admin.create_topics([new], operation_timeout=20)[topic].result(30)
            except KafkaException:  # a node that has just come back, or the answer died with the controller
                if topic in self.topics():
                    return
                assert time.monotonic() < deadline, f"{topic} cannot be created"
                time.sleep(0.2)
            else:
                return

    def delete(self, *topics: str) -> None:
        """Until nobody lists them."""
        deadline = time.monotonic() + 60
        while gone := [topic for topic in topics if topic in self.topics()]:
            assert time.monotonic() < deadline, f"{gone} cannot be deleted"
            for future in self.admin.delete_topics(gone, operation_timeout=10).values():
                with suppress(KafkaException):
                    future.result(20)

    def topics(self) -> set[str]:
        while True:
            with suppress(KafkaException):
                return set(self.admin.list_topics(timeout=10).topics)

    def partitions(self, topic: str) -> list[PartitionMetadata]:
        """Empty while nobody answers."""
        with suppress(KafkaException):
            found = self.admin.list_topics(topic, timeout=10).topics[topic]
            return [found.partitions[index] for index in sorted(found.partitions)]
        return []

    def in_sync(self, *topics: str) -> bool:
        rows = {topic: self.partitions(topic) for topic in topics}
        return all(found and all(len(r.isrs) == len(r.replicas) for r in found) for found in rows.values())

    def wait_in_sync(self, *topics: str, timeout: float = 60) -> None:
        wait_for(lambda: self.in_sync(*topics), timeout, f"not in sync: {topics}")

    def settled(self, topic: str) -> bool:
        found = self.partitions(topic)
        return bool(found) and all(len(r.isrs) == len(r.replicas) and r.leader == r.replicas[0] for r in found)

    def move(self, node_id: int, topic: str, partition: int, target: str) -> None:
        with self.client(node_id) as client:
            move_log_dirs(client, {(topic, partition): Placement((node_id,), (target,))})

    def places(self, node_id: int) -> dict[tuple[str, int], tuple[str, str | None]]:
        with self.client(node_id) as client:
            return log_dirs_of(client, node_id)

    def moved(self, node_id: int, topic: str, partition: int, target: str) -> bool:
        try:
            return self.places(node_id).get((topic, partition)) == (target, None)
        except (ClientError, KafkaError):
            return False

    def reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        with self.client() as client:
            reassign(client, {(topic, partition): tuple(replicas)})

    def reassigned(self, topic: str, partition: int, replicas: list[int]) -> bool:
        with suppress(KafkaError, ClientError), self.client() as client:
            if (topic, partition) in ongoing(client):
                return False
        rows = self.partitions(topic)
        return bool(rows) and rows[partition].replicas == replicas and sorted(rows[partition].isrs) == sorted(replicas)

    def move_rate(self, node_id: int, rate: int | None) -> None:
        """Bytes per second of moves between directories; None takes the limit away."""
        operation = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
        entries = [ConfigEntry(MOVE_RATE, str(rate or 0), incremental_operation=operation)]
        self._alter(ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=entries))

    def configure(self, topic: str, name: str, value: str) -> None:
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)]
        self._alter(ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries))

    def _alter(self, resource: ConfigResource) -> None:
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(30)

    # What is on the disks

    def fill(self, node_id: int) -> None:
        """Not a byte is left on the node's small disk."""
        with (self.small_disk(node_id) / "filler").open("wb", buffering=0) as filler:
            with suppress(OSError):
                os.posix_fallocate(filler.fileno(), 0, _free(self.small_disk(node_id)))
            filler.seek(0, os.SEEK_END)
            with suppress(OSError):
                while True:
                    filler.write(bytes(4096))

    def free(self, node_id: int) -> None:
        (self.small_disk(node_id) / "filler").unlink(missing_ok=True)

    def folders(self, node_id: int, pattern: str) -> list[Path]:
        return [path for directory in self.data_dirs(node_id) for path in sorted(directory.glob(pattern))]

    def leftovers(self) -> list[str]:
        """Copies and deleted folders that nobody has tidied up."""
        found = [path for node_id in self.nodes for path in self.folders(node_id, "*-*")]
        return [str(path) for path in found if _LEFTOVER.search(path.name)]

    def offline_directories(self) -> list[str]:
        with self.client() as client:
            answers = [
                client.node_call("describeLogDirs", node_id, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
                for node_id in self.nodes
            ]
        return [f"{row.log_dir}: {row.error_code}" for answer in answers for row in answer.results if row.error_code]

    def log_file(self, node_id: int) -> Path:
        return self.nodes[node_id].directory / "ottla.log"

    def log_size(self, node_id: int) -> int:
        file = self.log_file(node_id)
        return file.stat().st_size if file.exists() else 0

    def log_since(self, node_id: int, position: int) -> str:
        with self.log_file(node_id).open("rb") as file:
            file.seek(position)
            return file.read().decode(errors="replace")

    def assert_no_bug(self) -> None:
        """No node has logged what stands for a bug of ours since the last look."""
        for node_id, position in self._scanned.items():
            text = self.log_since(node_id, position)
            self._scanned[node_id] = position + len(text.encode())
            for sign in BUG_SIGNS:
                at = text.find(sign)
                assert at < 0, f"node {node_id}: {text[max(0, at - 500) : at + 3000]}"


def _free(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


@contextmanager
def small_disks(directory: Path) -> Iterator[None]:
    """A tmpfs for each node where EdgeCluster puts its small disk; NoMounts where that is not permitted."""
    mounted: list[Path] = []
    try:
        for node_id in (1, 2, 3):
            place = directory / f"node-{node_id}" / "small"
            place.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(place)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoMounts(done.stderr.strip())
            mounted.append(place)
        yield
    finally:
        for place in mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)
