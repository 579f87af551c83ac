"""Lag of groups in records and seconds at a node's own /metrics: true, the same as the console's, and asked of leaders."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.cli.commands import ottla
from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.client.settings import client_settings
from ottla.testing import Broker
from tests.console.site import ServedConsole
from tests.robustness.cluster_process import ClusterProcess
from tests.server.test_monitoring import get, samples
from tests.support.ports import free_port

HOUR_MS = 3_600_000


def produce(bootstrap_servers: str, topic: str, *times_ms: int, partition: int = 0) -> None:
    """A batch each."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for time_ms in times_ms:
        producer.produce(topic, b"x", timestamp=time_ms, partition=partition)
        assert producer.flush(30) == 0


def make_topic(bootstrap_servers: str, topic: str, assignment: list[list[int]] | None = None) -> None:
    new = (
        NewTopic(topic, 1, 1) if assignment is None else NewTopic(topic, len(assignment), replica_assignment=assignment)
    )
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([new])[topic].result(30)


def commit(bootstrap_servers: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    with Cluster(client_settings(bootstrap_servers, {})) as cluster:
        commit_offsets(cluster, group, offsets)


def lag(address: str, group: str, topic: str, partition: int = 0) -> tuple[float | None, float | None]:
    found = samples(get(address, "/metrics"))
    labels = (("group", group), ("partition", str(partition)), ("topic", topic))
    return found.get(("ottla_group_lag_records", labels)), found.get(("ottla_group_lag_seconds", labels))


def eventually(look: Callable[[], Any], is_so: Callable[[Any], bool], seconds: float = 40) -> Any:
    deadline = time.monotonic() + seconds
    while not is_so(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def test_records_and_seconds_as_the_group_moves() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address}) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "t")
        now = int(time.time() * 1000)
        produce(servers, "t", now - 3 * HOUR_MS, now - 2 * HOUR_MS, now - HOUR_MS)
        for offset, records, hours in ((0, 3, 3), (1, 2, 2), (2, 1, 1), (3, 0, 0)):
            commit(servers, "g", {("t", 0): offset})
            told = eventually(lambda: lag(address, "g", "t"), lambda found, wanted=records: found[0] == wanted)
            assert told[1] == pytest.approx(hours * 3600, abs=100 if hours else 0)
        with Cluster(client_settings(servers, {})) as cluster:  # below the log's start: the first that is left
            commit_offsets(cluster, "g", {("t", 0): 0})
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.delete_records([TopicPartition("t", 0, 2)]).values():
            future.result(30)
        eventually(lambda: lag(address, "g", "t"), lambda found: found[0] == 3 and 3500 < (found[1] or 0) < 3700)
        admin.delete_topics(["t"])["t"].result(30)
        eventually(lambda: lag(address, "g", "t"), lambda found: found == (None, None))


def test_the_console_says_the_same() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address}) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "t")
        commit(servers, "g", {("t", 0): 0})
        with ServedConsole(bootstrap_servers=servers) as console:
            theirs = console.url.removeprefix("http://")
            eventually(lambda: lag(theirs, "g", "t"), lambda found: found[0] == 0)
            produce(servers, "t", *(int(time.time() * 1000) for _ in range(5)))
            eventually(lambda: lag(theirs, "g", "t"), lambda found: found[0] == 5 and (found[1] or 0) > 2)

            def same(found: list[tuple[float | None, float | None]]) -> bool:
                """The console looks twice a second here, and both a moment apart."""
                (ours, our_seconds), (told, seconds) = found
                return ours == told == 5 and our_seconds == pytest.approx(seconds, abs=5)

            eventually(lambda: [lag(address, "g", "t"), lag(theirs, "g", "t")], same)


def test_a_member_without_a_commit_counts_from_the_start_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node, the console, `ottla group describe` and `ottla top` by one rule, and times before their own start."""
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address}) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "t")
        now = int(time.time() * 1000)
        produce(servers, "t", *[now - 3 * HOUR_MS] * 7)
        commit(servers, "reader", {("t", 0): 3})
        consumer = Consumer({
            "bootstrap.servers": servers, "group.id": "member", "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        })  # fmt: skip
        try:
            consumer.subscribe(["t"])
            while consumer.consume(1, 1.0) == []:
                pass
            with ServedConsole(bootstrap_servers=servers) as console:
                for place in (address, console.url.removeprefix("http://")):
                    eventually(lambda place=place: uncommitted(place, "member", "t"), lambda records: records == 7)
                    assert lag(place, "member", "t") == (None, None)
                    assert lag(place, "reader", "t") == (4, pytest.approx(3 * 3600, abs=100))
            monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", servers)
            described = json.loads(CliRunner().invoke(ottla, ["group", "describe", "member", "-o", "json"]).stdout)
            (row,) = described["partitions"]
            assert (described["lag"], row["offset"], row["lag"], row["counts_from"]) == (7, None, 7, "start")
            assert row["behind_s"] == pytest.approx(3 * 3600, abs=100)
            shown = CliRunner().invoke(ottla, ["top", "--count", "1"]).stdout
            lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
            assert "7 *" in lines["member"], shown
            assert "3 h" in lines["reader"], shown
        finally:
            consumer.close()


def uncommitted(address: str, group: str, topic: str) -> float | None:
    labels = (("group", group), ("partition", "0"), ("topic", topic))
    return samples(get(address, "/metrics")).get(("ottla_group_uncommitted_records", labels))


@pytest.mark.timeout(180)
def test_partitions_that_others_hold_are_asked_for(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        servers = cluster.bootstrap_servers
        addresses = {node_id: f"127.0.0.1:{node.http_port}" for node_id, node in cluster.nodes.items()}
        make_topic(servers, "spread", [[1], [2], [3]])
        now = int(time.time() * 1000)
        for partition in range(3):
            produce(servers, "spread", now - HOUR_MS, now, partition=partition)
        commit(servers, "g", {("spread", partition): 0 for partition in range(3)})

        def told() -> dict[int, list[tuple[float | None, float | None]]]:
            found = {node: [lag(each, "g", "spread", n) for n in range(3)] for node, each in addresses.items()}
            return {node: lags for node, lags in found.items() if lags != [(None, None)] * 3}

        def is_complete(found: dict[int, list[tuple[float | None, float | None]]]) -> bool:
            """Only the coordinator tells, and of all."""
            return len(found) == 1 and all(one[1] is not None for lags in found.values() for one in lags)

        everything = eventually(told, is_complete)
        for records, seconds in next(iter(everything.values())):
            assert records == 2
            assert seconds == pytest.approx(3600, abs=100)
        readiness_follows_the_node(cluster, addresses)


def readiness_follows_the_node(cluster: ClusterProcess, addresses: dict[int, str]) -> None:
    """Not ready while it hands over to controllers that are gone, nor while it waits for them at its start."""
    assert ready(addresses[1]) == (200, "ready\n")
    cluster.kill(2)
    cluster.kill(3)
    cluster.signal(1, signal.SIGTERM)
    eventually(lambda: ready(addresses[1]), lambda found: found == (503, "stopping\n"))
    assert get(addresses[1], "/healthz") == "ok\n"
    cluster.kill(1)
    cluster.start(1)
    eventually(lambda: ready(addresses[1]), lambda found: found == (503, "starting\n"))
    assert get(addresses[1], "/healthz") == "ok\n"
    with pytest.raises(HTTPError, match="503"):
        get(addresses[1], "/metrics")
    cluster.start(2)
    eventually(lambda: ready(addresses[1]), lambda found: found == (200, "ready\n"), 60)


def ready(address: str) -> tuple[int, str]:
    try:
        return 200, get(address, "/readyz")
    except HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, "nobody answers"
