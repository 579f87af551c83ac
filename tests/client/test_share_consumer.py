"""The member of a share group in `ottla.client`: its sessions follow the assignment and the leaders, and gaps are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import Cluster
from ottla.client.configs import SET, ConfigResourceType, alter_configs
from ottla.client.reassignments import elect_preferred, reassign, view
from ottla.client.settings import client_settings
from ottla.client.share_consumer import ACCEPT, ShareConsumer, ShareRecord
from ottla.client.share_groups import share_offsets
from ottla.client.topics import create_partitions, create_topic
from ottla.testing import Broker
from tests.robustness.cluster_process import ClusterProcess
from tests.share.queue_load import FAST_GROUPS
from tests.support.caught_up import catch_up

GROUP, TOPIC = "workers", "work"
_WAIT_S = 30.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(properties=FAST_GROUPS) as broker, Cluster(client_settings(broker.bootstrap_servers)) as connected:
        yield connected


def _prepare(cluster: Cluster, partitions: int, replication_factor: int = 1) -> str:
    create_topic(cluster, TOPIC, partitions=partitions, replication_factor=replication_factor)
    alter_configs(cluster, ConfigResourceType.GROUP, GROUP, [("share.auto.offset.reset", SET, "earliest")])
    return ",".join(f"{host}:{port}" for host, port in cluster.settings.bootstrap)


def _write(servers: str, values: dict[int, list[str]], **settings: str) -> None:
    producer = Producer({"bootstrap.servers": servers, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for partition, listed in values.items():
        for value in listed:
            producer.produce(TOPIC, value.encode(), partition=partition)
    if "transactional.id" in settings:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0


def _read(member: ShareConsumer, wanted: set[str]) -> list[ShareRecord]:
    """Polls and accepts until the values are there."""
    records: list[ShareRecord] = []
    deadline = time.monotonic() + _WAIT_S
    while not wanted <= {_text(record) for record in records}:
        assert time.monotonic() < deadline, [_text(record) for record in records]
        for record in member.poll(100):
            member.acknowledge(record, ACCEPT)
            records.append(record)
    return records


def _text(record: ShareRecord) -> str:
    return (record.value or b"").decode()


def _poll_until(member: ShareConsumer, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        for record in member.poll(100):
            member.acknowledge(record, ACCEPT)


def _unfinished(cluster: Cluster) -> dict[int, int]:
    """For each partition the offsets that nobody has acknowledged yet."""
    return {partition: row.lag for (_, partition), row in share_offsets(cluster, GROUP).items()}


def test_partitions_that_are_added_are_read(cluster: Cluster) -> None:
    servers = _prepare(cluster, 1)
    catch_up(servers)
    _write(servers, {0: ["a"]})
    member = ShareConsumer(cluster, GROUP, TOPIC)
    _read(member, {"a"})
    create_partitions(cluster, TOPIC, 3, None)
    catch_up(servers)
    _write(servers, {0: ["b"], 1: ["c"], 2: ["d"]})
    places = {record.place[1] for record in _read(member, {"b", "c", "d"})}
    assert places == {0, 1, 2}
    _poll_until(member, lambda: _unfinished(cluster) == {0: 0, 1: 0, 2: 0})
    member.close()


def test_a_partition_that_goes_to_another_member_is_forgotten(cluster: Cluster) -> None:
    """Its last records are acknowledged where they came from."""
    servers = _prepare(cluster, 2)
    catch_up(servers)
    _write(servers, {0: ["a"], 1: ["b"]})
    first, second = ShareConsumer(cluster, GROUP, TOPIC), ShareConsumer(cluster, GROUP, TOPIC)
    _read(first, {"a", "b"})
    deadline = time.monotonic() + _WAIT_S
    read: dict[int, set[int]] = {1: set(), 2: set()}
    number = 0
    while not (len(read[2]) == 1 and len(read[1]) == 1):
        assert time.monotonic() < deadline, read
        read = {1: set(), 2: set()}
        number += 1
        _write(servers, {0: [f"{number}-0"], 1: [f"{number}-1"]})
        for name, member in ((1, first), (2, second), (1, first), (2, second)):
            for record in member.poll(100):
                member.acknowledge(record, ACCEPT)
                read[name].add(record.place[1])
    assert read[1] != read[2]

    def settled() -> bool:
        for record in second.poll(100):
            second.acknowledge(record, ACCEPT)
        return set(_unfinished(cluster).values()) == {0}

    _poll_until(first, settled)
    first.close()
    second.close()


def test_control_records_are_acknowledged(cluster: Cluster) -> None:
    servers = _prepare(cluster, 1)
    catch_up(servers)
    for number in range(3):
        _write(servers, {0: [f"v{number}"]}, **{"transactional.id": "writer"})
    member = ShareConsumer(cluster, GROUP, TOPIC)
    records = _read(member, {"v0", "v1", "v2"})
    assert [record.offset for record in records] == [0, 2, 4]
    _poll_until(member, lambda: _unfinished(cluster) == {0: 0})
    member.close()


def test_closing_acknowledges_what_waits(cluster: Cluster) -> None:
    servers = _prepare(cluster, 1)
    catch_up(servers)
    _write(servers, {0: ["only"]}, **{"transactional.id": "writer"})
    member = ShareConsumer(cluster, GROUP, TOPIC)
    _read(member, {"only"})
    member.close()
    deadline = time.monotonic() + _WAIT_S
    while _unfinished(cluster) != {0: 0}:
        assert time.monotonic() < deadline, _unfinished(cluster)
        time.sleep(0.05)


@pytest.mark.timeout(240)
def test_the_member_follows_its_leaders(tmp_path: Path) -> None:
    """A leader that moves, then a leader that dies."""
    settings = {
        **FAST_GROUPS,
        "share.coordinator.state.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    with (
        ClusterProcess(tmp_path, properties=settings) as nodes,
        Cluster(client_settings(nodes.bootstrap_servers)) as cluster,
    ):
        servers = _prepare(cluster, 1, 3)
        _write(servers, {0: ["a"]})
        member = ShareConsumer(cluster, GROUP, TOPIC)
        _read(member, {"a"})
        first = view(cluster).leaders[TOPIC, 0]
        others = tuple(node for node in nodes.nodes if node != first)
        reassign(cluster, {(TOPIC, 0): (*others, first)})
        _poll_until(member, lambda: len(view(cluster).isr[TOPIC, 0]) == 3)
        elect_preferred(cluster, [(TOPIC, 0)])
        _poll_until(member, lambda: view(cluster).leaders[TOPIC, 0] in others)
        _write(servers, {0: ["b"]})
        _read(member, {"b"})
        nodes.kill(view(cluster).leaders[TOPIC, 0])
        _write(servers, {0: ["c"]})
        _read(member, {"c"})
        member.close()
