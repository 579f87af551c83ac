"""Three nodes of each kind, replication factor 3, min ISR 2: writing with acks=all, latency, failover, memory.

The three servers share the machine with the client, so the figures say more about the ratio than about the size. All
are warm before anything is measured: a JVM compiles what it runs often, and its first tens of thousands of requests say
little about the rest. The failover row kills the leader of the only partition and counts the time until the next acknowledgement.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.bed import Bed
from bench.loads import Case, Measured
from bench.loads.produce import Shape, write
from bench.measure import P50, Quantity, Target, percentile
from bench.plan import Sizes
from bench.process import rss_mb
from bench.servers import Server, ServerError
from ottla.model.ids import new_uuid, uuid_to_str

NAME = "cluster"
NODES = 3
WARM_REQUESTS = 2_000
_SHAPE = Shape(record_bytes=1000, partitions=6)
RATE = Quantity("rate", "MB/s", "higher", Target("ratio", ">=", 1.0))
P99 = Quantity("p99", "ms", "lower", Target("ratio", "<=", 0.8))
RSS = Quantity("RSS", "MB", "lower", Target("ratio", "<=", 0.15))
FAILOVER = Quantity("failover", "s", "lower", Target("ratio", "<=", 1.0))


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(load=NAME, label=f"write {_SHAPE.label}", quantities=(RATE, RSS), run=partial(_write, sizes)),
        Case(load=NAME, label="latency, acks=all", quantities=(P50, P99), run=partial(_latency, sizes)),
        Case(load=NAME, label="the leader is killed", quantities=(FAILOVER,), run=partial(_failover, sizes)),
    ]


class Trio:
    """Three servers that form one cluster."""

    def __init__(self, bed: Bed, role: str) -> None:
        self.folder: Path = bed.folder / bed.name(role)
        self.servers = {i: bed.kinds[role](self.folder / str(i)) for i in range(1, NODES + 1)}
        self.bootstrap = ",".join(server.bootstrap for server in self.servers.values())

    @property
    def first(self) -> Server:
        return self.servers[1]

    def start(self, timeout_s: float) -> None:
        cluster_id = uuid_to_str(new_uuid(os.urandom))
        voters = ",".join(f"{i}@127.0.0.1:{server._controller_port}" for i, server in self.servers.items())
        for node_id, server in self.servers.items():
            self._format(node_id, server, voters, cluster_id)
        for server in self.servers.values():
            server.spawn()
        for server in self.servers.values():
            server.await_answer(timeout_s)
            server.bootstrap = self.bootstrap

    def _format(self, node_id: int, server: Server, voters: str, cluster_id: str) -> None:
        server.folder.mkdir(parents=True, exist_ok=True)
        here = f"127.0.0.1:{server.port},CONTROLLER://127.0.0.1:{server._controller_port}"
        lines = [
            "process.roles=broker,controller",
            f"node.id={node_id}",
            f"controller.quorum.voters={voters}",
            f"listeners=PLAINTEXT://{here}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{server.port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={server.folder}/data",
            "auto.create.topics.enable=false",
            "default.replication.factor=3",
            "min.insync.replicas=2",
        ]
        server.properties.write_text("\n".join(lines) + "\n")
        command = server._tool("format", "-t", cluster_id, "-c", str(server.properties))
        done = subprocess.run(command, capture_output=True, timeout=60, env=server._environment(), check=False)
        if done.returncode:
            raise ServerError(f"{server.name}: format failed: {done.stderr.decode(errors='replace')}")

    def create_topic(self, name: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        deadline = time.monotonic() + 60
        while len(admin.list_topics(timeout=30).brokers) < NODES:
            if time.monotonic() > deadline:
                raise ServerError("not all brokers are there")
            time.sleep(0.1)
        admin.create_topics([NewTopic(name, partitions, NODES)])[name].result(30)

    def leader(self, topic: str) -> int:
        from confluent_kafka.admin import AdminClient

        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic, timeout=30)
        leader: int = found.topics[topic].partitions[0].leader
        return leader

    def remove(self) -> None:
        for server in self.servers.values():
            server.remove()


@contextmanager
def _trio(sizes: Sizes, bed: Bed, role: str) -> Iterator[Trio]:
    bed.rest()
    trio = Trio(bed, role)
    try:
        trio.start(sizes.start_timeout_s)
        yield trio
    finally:
        trio.remove()


def _write(sizes: Sizes, bed: Bed, role: str) -> Measured:
    with _trio(sizes, bed, role) as trio:
        count = sizes.produce_bytes // _SHAPE.record_bytes // 2
        _warm(bed, trio, count)
        trio.create_topic("t", _SHAPE.partitions)
        rate = write(bed, trio.first, "t", _SHAPE, count)
        memory = sum(rss_mb(server.pid) for server in trio.servers.values())
        return {RATE: rate * _SHAPE.record_bytes / 1e6, RSS: memory}


def _warm(bed: Bed, trio: Trio, count: int) -> None:
    """A load of its own that nobody measures: as much as is measured then, and requests one by one."""
    trio.create_topic("warm", _SHAPE.partitions)
    write(bed, trio.first, "warm", _SHAPE, count)
    _acks(trio, WARM_REQUESTS, "warm")


def _latency(sizes: Sizes, bed: Bed, role: str) -> Measured:
    with _trio(sizes, bed, role) as trio:
        _warm(bed, trio, sizes.produce_bytes // _SHAPE.record_bytes // 4)
        trio.create_topic("t", 1)
        values = _acks(trio, sizes.latency_records)[sizes.latency_records // 10 :]
        return {P50: percentile(values, 50) * 1000, P99: percentile(values, 99) * 1000}


def _acks(trio: Trio, count: int, topic: str = "t") -> list[float]:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": trio.bootstrap, "acks": "all", "linger.ms": 0})
    values = []
    for _ in range(count):
        began = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        producer.flush(30)
        values.append(time.perf_counter() - began)
    return values


def _failover(sizes: Sizes, bed: Bed, role: str) -> Measured:
    import confluent_kafka

    with _trio(sizes, bed, role) as trio:
        _warm(bed, trio, sizes.produce_bytes // _SHAPE.record_bytes // 8)
        trio.create_topic("t", 1)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": trio.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        producer.produce("t", b"before", partition=0)
        producer.flush(30)
        trio.servers[trio.leader("t")].kill()
        began = time.perf_counter()
        producer.produce("t", b"after", partition=0)
        if producer.flush(sizes.timeout_s):
            raise ServerError("nothing was acknowledged after the leader's death")
        return {FAILOVER: time.perf_counter() - began}
