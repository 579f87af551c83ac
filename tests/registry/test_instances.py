"""Several instances, one writer: killed, paused and started again while schemas are registered through all of them.

No id lost, reused or doubled: what was acknowledged is there with its id, one schema has one id, one id one schema.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests.registry.instances import RegistryProcess, RegistryThread, call, register, until
from tests.support.apache_kafka import ApacheKafka

INSTANCES = 3
CLIENTS = 3


def schema(name: str, field: str = "a") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": field, "type": "int", "default": 1}]})


class Cluster:
    def __init__(self, bootstrap_servers: str, *arguments: str) -> None:
        self.members = [RegistryProcess(bootstrap_servers, 0, *arguments).start() for _ in range(INSTANCES)]

    def urls(self) -> list[str]:
        return [member.url for member in self.members if member.process is not None]

    def writer(self) -> RegistryProcess | None:
        """Who takes a write that says it was forwarded already (a configuration that changes nothing)."""
        for member in self.members:
            if member.process is None:
                continue
            try:
                body, headers = {"compatibility": "BACKWARD"}, {"X-Forward": "true"}
                if call(member.url, "PUT", "/config", body, headers=headers, timeout=5)[0] == 200:
                    return member
            except OSError:
                continue
        return None

    def stop(self) -> None:
        for member in self.members:
            member.kill()


class Clients:
    """Threads that register, each schema under subjects of its own and one that all of them share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self.acknowledged: list[tuple[str, str, int]] = []
        self.problems: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(index,), daemon=True) for index in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, index: int) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            # All clients race for the same names, so that two writers would show as two ids for one schema.
            name = f"Shared{number}" if number % 3 else f"Own{index}x{number}"
            self._register(f"subject-{name}-{index}", name)

    def _register(self, subject: str, name: str) -> None:
        text = schema(name)
        while not self._stopping.is_set():
            urls = self._cluster.urls()
            try:
                status, answer = register(random.choice(urls), subject, text)
            except (OSError, IndexError):
                time.sleep(0.05)
                continue
            if status == 200:
                self.acknowledged.append((subject, name, answer["id"]))
                return
            if status != 500 and status != 503:
                self.problems.append(f"{subject}: {status} {answer}")
                return


def check(url: str, acknowledged: list[tuple[str, str, int]]) -> None:
    by_name: dict[str, int] = {}
    for _, name, schema_id in acknowledged:
        assert by_name.setdefault(name, schema_id) == schema_id, f"{name} has the ids {by_name[name]} and {schema_id}"
    by_id: dict[int, str] = {}
    for name, schema_id in by_name.items():
        assert by_id.setdefault(schema_id, name) == name, f"id {schema_id} is {by_id[schema_id]} and {name}"
    listed: list[dict[str, Any]] = []
    while True:
        page = call(url, "GET", f"/schemas?offset={len(listed)}&limit=1000")[1]
        listed += page
        if len(page) < 1000:
            break
    found = {(each["subject"], json.loads(each["schema"])["name"]): each["id"] for each in listed}
    lost = [entry for entry in acknowledged if found.get((entry[0], entry[1])) != entry[2]]
    assert lost == []
    schemas: dict[int, str] = {}
    ids: dict[str, int] = {}
    for each in listed:
        assert schemas.setdefault(each["id"], each["schema"]) == each["schema"], f"id {each['id']} is two schemas"
        assert ids.setdefault(each["schema"], each["id"]) == each["id"], f"{each['schema']} has two ids"


def run_rounds(rounds: int, seed: int, broker: Broker) -> tuple[int, int]:
    """How many registrations were acknowledged, and how many kills hit the writer."""
    chance = random.Random(seed)
    cluster = Cluster(broker.bootstrap_servers)
    clients = Clients(cluster)
    writers_hit = 0
    try:
        until(cluster.writer, 240, "an election")
        clients.start()
        for number in range(rounds):
            before = len(clients.acknowledged)
            until(lambda: len(clients.acknowledged) > before + 10, 240, "progress")  # noqa: B023 - called at once
            victim = cluster.writer() if number % 2 == 0 else None
            writers_hit += victim is not None
            victim = victim or chance.choice(cluster.members)
            time.sleep(chance.random() * 0.3)
            if number % 4 == 2:
                _pause(victim)
            else:
                victim.kill()
                victim.start()
        until(lambda: len(clients.acknowledged) > before + 10, 240, "progress at the end")
        clients.stop()
        assert clients.problems == []
        for url in cluster.urls():
            until(lambda: _caught_up(url, clients.acknowledged), 240, "the last schema everywhere")  # noqa: B023 - as above
            check(url, clients.acknowledged)
    finally:
        clients.stop()
        cluster.stop()
    with RegistryThread(broker.bootstrap_servers) as fresh:
        check(fresh.url, clients.acknowledged)
    return len(clients.acknowledged), writers_hit


def _caught_up(url: str, acknowledged: list[tuple[str, str, int]]) -> bool:
    return call(url, "GET", f"/schemas/ids/{acknowledged[-1][2]}")[0] == 200


def _pause(victim: RegistryProcess) -> None:
    """Longer than the session: another one is elected, and then the old writer wakes up and still believes."""
    assert victim.process is not None
    os.kill(victim.process.pid, signal.SIGSTOP)
    try:
        time.sleep(7.5)
    finally:
        os.kill(victim.process.pid, signal.SIGCONT)


@pytest.mark.timeout(900)
def test_an_instance_killed_five_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        acknowledged, writers_hit = run_rounds(5, 4711, broker)
    assert acknowledged > 50
    assert writers_hit > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_an_instance_killed_a_hundred_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        acknowledged, writers_hit = run_rounds(100, 7, broker)
    print(f"{acknowledged} registrations acknowledged, the writer was hit {writers_hit} times")
    assert acknowledged > 1000


@pytest.mark.timeout(180)
def test_two_that_both_believe_to_be_the_writer_settle_it_in_the_log(tmp_path: Path) -> None:
    """--alone twice on one topic: no election at all, both write as fast as they can."""
    with (
        Broker(directory=tmp_path) as broker,
        RegistryThread(broker.bootstrap_servers) as one,
        RegistryThread(broker.bootstrap_servers) as two,
    ):
        acknowledged: list[tuple[str, str, int]] = []

        def work(url: str, index: int) -> None:
            for number in range(60):
                name = f"Shared{number}" if number % 2 else f"Own{index}x{number}"
                status, answer = register(url, f"s-{name}-{index}", schema(name))
                assert status == 200, answer
                acknowledged.append((f"s-{name}-{index}", name, answer["id"]))

        threads = [threading.Thread(target=work, args=(r.url, i)) for i, r in enumerate((one, two, one, two))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert len(acknowledged) == 240
        until(lambda: one.server.registry.log.position == two.server.registry.log.position)
        check(one.url, acknowledged)
        check(two.url, acknowledged)
        until(lambda: not one.server.registry.log.voided, what="every void record written over")


@pytest.mark.timeout(180)
def test_a_follower_forwards_and_reads_its_own_writes(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        forwarded(broker.bootstrap_servers)


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_a_follower_forwards_beside_apache_kafka(apache_kafka: ApacheKafka) -> None:
    forwarded(apache_kafka.bootstrap_servers, "--topic", "_schemas_forwarded", "--group-id", "forwarded")


def forwarded(bootstrap_servers: str, *arguments: str) -> None:
    cluster = Cluster(bootstrap_servers, *arguments)
    try:
        writer = until(cluster.writer, 60, "an election")
        follower = next(member for member in cluster.members if member is not writer)
        for number in range(20):
            text = schema("R") if number == 0 else schema("R", f"a{number}")
            status, answer = register(follower.url, "s", text)
            assert status == 200, answer
            assert call(follower.url, "GET", f"/schemas/ids/{answer['id']}")[0] == 200
        assert call(follower.url, "DELETE", "/subjects/s/versions/1") == (200, 1)
        assert 1 not in call(follower.url, "GET", "/subjects/s/versions")[1]
        assert writer.stop() == 0, "a writer that is asked to stop hands over"
        assert register(follower.url, "t", schema("T"))[0] == 200
    finally:
        cluster.stop()
