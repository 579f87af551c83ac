"""The cluster and the load of the long run: EdgeCluster with switches in its network and disks that drop what was not synced.

Everything that clients do is recorded (`histories`), for checkers that judge the whole run at its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException, TopicPartition

from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.model.ids import Uuid
from ottla.simulation.ledger import Ledger
from tests.robustness.cluster_process import HOST
from tests.robustness.dropping_disk import MountedDisk, dropping_disks
from tests.robustness.edge_cluster import EdgeCluster, small_disks
from tests.robustness.edge_load import Reborn
from tests.robustness.edge_replicas import batches
from tests.robustness.edge_soak import COMPACTED, LAYOUT, PLAIN, SOLO, EdgeSoak
from tests.robustness.histories import READ, History
from tests.robustness.links import Links, put_between
from tests.robustness.load import Sender, new_reader
from tests.robustness.read_process_write import INPUT, OUTPUT
from tests.robustness.recorded_load import RecordedCopyLoad, RecordedReader, RecordedSender, Watchers, identity

REPLACED = 0.3
"""Of the faults: a member of the group leaves before, and another one joins."""
SURVEY_S = 30.0
REST_S = 0.02
"""Of a sender, after each burst of up to five records."""


class FaultCluster(EdgeCluster):
    def __init__(self, directory: Path, disks: dict[int, MountedDisk]) -> None:
        super().__init__(directory)
        self._disks = disks
        self.links = Links(lambda: {i: p.pid for i, p in self.processes.items() if p.poll() is None})
        put_between(self.links, self.nodes.values())

    def __exit__(self, *error) -> None:  # type: ignore[no-untyped-def]
        super().__exit__(*error)
        self.links.close()

    @contextmanager
    def client(self, node_id: int | None = None) -> Iterator[Cluster]:
        """More patient than its parent's: a run goes on for long, on any machine."""
        patient = {"default.api.timeout.ms": "60000", "request.timeout.ms": "20000"}
        servers = self.bootstrap_servers if node_id is None else f"{HOST}:{self.nodes[node_id].port}"
        with Cluster(client_settings(servers, patient)) as client:
            yield client

    def dropping(self, node_id: int) -> Path:
        """The log directory that drops what was not synced."""
        return self._disks[node_id].mountpoint

    def cut_power(self, node_id: int, seed: int) -> tuple[int, int]:
        """Of a node that was killed: lost bytes, and names that are taken back."""
        self.processes[node_id].wait(20)
        return self._disks[node_id].cut(seed)

    def topic_id(self, topic: str) -> str:
        with self.client() as client:
            (described,) = client.describe("describeTopics", [topic]).topics
        return described.topic_id.hex()


@contextmanager
def fault_cluster(directory: Path) -> Iterator[FaultCluster]:
    """Raises NoMounts where this machine does not permit its disks."""
    with small_disks(directory), dropping_disks(directory) as disks, FaultCluster(directory, disks) as cluster:
        yield cluster


class RecordedSoak(EdgeSoak):
    # Without a replica, only what is synced survives a power cut.
    layout: ClassVar = {**LAYOUT, SOLO: (LAYOUT[SOLO][0], {**LAYOUT[SOLO][1], "flush_messages": "1"})}
    cluster: FaultCluster

    def __init__(
        self,
        cluster: FaultCluster,
        directory: Path,
        seed: int,
        history: History,
        *,
        workers: int = 2,
        rest_s: float = REST_S,
    ) -> None:
        self.history, self._rest_s = history, rest_s
        super().__init__(cluster, directory, seed, workers=workers)
        self.watchers = Watchers(cluster.bootstrap_servers, PLAIN, history)

    def _sender(self, name: str, topic: str, partitions: int, seed: int) -> Sender:
        if topic not in self.history.topics:
            self.history.topic(topic, self.cluster.topic_id(topic))
        return RecordedSender(
            name, self.cluster.bootstrap_servers, topic, partitions, history=self.history,
            idempotent=True, seed=seed, in_flight=1, burst=6, rest_s=self._rest_s,
        )  # fmt: skip

    def _reader(self) -> RecordedReader:
        return RecordedReader(self.cluster.bootstrap_servers, self.senders, self.history)

    def _copy_load(self, directory: Path, workers: int) -> RecordedCopyLoad:
        return RecordedCopyLoad(self.cluster.bootstrap_servers, directory, self.history, replicas=3, workers=workers)

    def begin(self) -> None:
        super().begin()
        if self.chance.random() < REPLACED:
            self.watchers.replace()
            self.meter.take()

    def finish(self) -> str:
        ends = {partition: offset for (topic, partition), offset in self.reader.offsets().items() if topic == PLAIN}
        self.watchers.await_read(ends)
        self.watchers.close()
        summary = super().finish()
        self.history.finish()
        return summary

    def _compare(self, rows: dict[str, list]) -> int:  # type: ignore[type-arg]
        """Also: each producer's sequences follow each other in the logs as they are on disk."""
        ledger = Ledger()
        for topic, partitions in rows.items():
            for row in partitions if topic not in COMPACTED else ():
                for path in self.cluster.folders(row.replicas[0], f"{topic}-{row.id}"):
                    for header, _ in batches(path):
                        ledger.on_committed((Uuid(topic.encode()), row.id), f"{topic}-{row.id}", header)
        return super()._compare(rows)

    def survey(self) -> None:
        """After an anomaly: everything once more, as a settled read, for the checkers of the history."""
        topics = [topic for topic in self.history.topics if topic not in (INPUT, OUTPUT, Reborn.TOPIC)]
        for sender in self.senders:
            with suppress(AssertionError):
                sender.pause(SURVEY_S)
        with suppress(AssertionError):
            self.cluster.wait_in_sync(*topics, timeout=SURVEY_S)
        reader = new_reader(self.cluster.bootstrap_servers)
        for topic in topics:
            for row in self.cluster.partitions(topic):
                with suppress(KafkaException):
                    self._survey(reader, topic, row.id)
        reader.close()

    def _survey(self, reader, topic: str, partition: int) -> None:  # type: ignore[no-untyped-def]
        facts = {"topic": self.history.topics[topic], "partition": partition, "from": 0}
        operation = self.history.invoke(READ, **facts)
        _, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        reader.assign([TopicPartition(topic, partition, 0)])
        records: list[tuple[int, str]] = []
        deadline = time.monotonic() + SURVEY_S
        while len(records) < high and time.monotonic() < deadline:
            records += [(m.offset(), identity(m.value())) for m in reader.consume(500, 0.2) if m.error() is None]
        self.history.complete(operation, records=records, settled=len(records) >= high, end=high)

    def close(self) -> None:
        with suppress(AssertionError):
            self.watchers.close()
        super().close()
