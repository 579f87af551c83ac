"""Compaction and moves between directories keep to their bytes per second, which may be set while the node runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.client.cluster import Cluster
from ottla.client.placements import Placement, move_log_dirs
from ottla.client.settings import client_settings
from ottla.testing import Broker

MEGABYTE = 1_000_000


def test_a_move_between_directories_keeps_to_its_rate(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    with Broker(directory=tmp_path, properties={"log.dirs": ",".join(map(str, directories))}) as broker:
        create(broker, "t")
        fill(broker, "t", [f"{number}" for number in range(3000)])
        set_config(broker, ResourceType.BROKER, "1", "replica.alter.log.dirs.io.max.bytes.per.second", str(MEGABYTE))
        source = next(path for path in directories if (path / "t-0").exists())
        (target,) = set(directories) - {source}
        began = time.monotonic()
        with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
            move_log_dirs(cluster, {("t", 0): Placement((1,), (str(target),))})
        until(lambda: (target / "t-0").exists() and not (source / "t-0").exists())
        # Three megabytes, of which the first is free.
        assert time.monotonic() - began > 1.9


def test_compaction_keeps_to_its_rate(tmp_path: Path) -> None:
    slow = {"log.cleaner.io.max.bytes.per.second": str(MEGABYTE), "log.cleaner.backoff.ms": "100"}
    with Broker(directory=tmp_path, properties=slow) as broker:
        create(broker, "c", **{"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"})
        fill(broker, "c", [f"{number % 10}" for number in range(3500)])
        first = tmp_path / "data" / "c-0" / "00000000000000000000.log"
        began = time.monotonic()
        set_config(broker, ResourceType.TOPIC, "c", "cleanup.policy", "compact")
        until(lambda: size(first) < MEGABYTE // 2)
        # Before the first segment is exchanged, the cleaner reads three segments for its map, and the first one again. The
        # cleaner waits between two steps of a megabyte at most, so of four megabytes the last two may be free.
        assert time.monotonic() - began > 1.5


def create(broker: Broker, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)


def fill(broker: Broker, topic: str, keys: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 50_000})
    for key in keys:
        producer.produce(topic, b"x" * 1000, key)
    assert producer.flush(60) == 0


def set_config(broker: Broker, kind: ResourceType, whose: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, whose, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def size(path: Path) -> float:
    """Without an end while the file is being exchanged for another."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return inf


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
