"""What several scenes do: settings of a small node, topics, transactional producers, waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from ottla.client.cluster import Cluster
from ottla.client.topics import create_topic

FOLDER = "@FOLDER@"
"""Stands in a manifest's properties for the folder that the archive is unpacked into."""
SMALL = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
    # The recorded transactions stay as they are until a producer comes.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}


def make_topic(cluster: Cluster, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    create_topic(cluster, name, partitions=partitions, replication_factor=1, configs=configs)


def transactional_producer(servers: str, name: str) -> Producer:
    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000, "log_level": 3}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(30)
    return producer


def await_true(condition: Callable[[], bool], problem: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, problem
        time.sleep(0.05)
