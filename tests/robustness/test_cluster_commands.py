"""`ottla up --nodes 3` and `ottla cluster ...` on real processes: growing, draining under load, balancing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.robustness.cluster_process import ClusterProcess, wait_for
from tests.robustness.load import Reader, Sender
from tests.robustness.server_process import COMMAND, environment, ottla
from tests.support.ports import free_ports


def status(servers: str) -> dict:
    done = ottla("cluster", "status", "-b", servers, "-o", "json")
    assert done.stdout, done.stderr  # the exit code is 1 while a replica is not in sync
    return json.loads(done.stdout)


def up(directory: Path, port: int, nodes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "up", "--dir", str(directory), "--port", str(port), "--nodes", str(nodes), "--no-registry", "--no-console"],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def create(servers: str, partitions: int, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", partitions, factor)])["t"].result(60)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.timeout(240)
def test_a_node_that_dies_starts_again_and_a_second_up_is_refused(tmp_path: Path) -> None:
    port = free_ports(6)[0]
    two = up(tmp_path, port, 2)
    servers = f"127.0.0.1:{port}"
    try:
        assert "2 nodes" in first_line(two)
        second = up(tmp_path, port, 2)
        assert second.wait(60) == 1
        assert "is in use" in second.stderr.read()
        create(servers, 1, 2)
        wait_for(lambda: status(servers)["healthy"], 60, "both replicas are in sync")
        (victim,) = [pid for pid in children(two.pid) if f"{tmp_path}/node-2/" in command_line(pid)]
        os.kill(victim, signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: victim not in children(two.pid), 60, "the node is dead")
        wait_for(lambda: ottla("cluster", "status", "-b", servers).returncode == 0, 90, "the node is back, in sync")
        assert "node 2 ended with code -9: it starts again in 1 s" in two.stderr.readline()
        two.send_signal(signal.SIGINT)
        assert two.wait(60) == 0
    finally:
        if two.poll() is None:
            two.kill()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


@pytest.mark.timeout(120)
def test_draining_with_too_few_nodes(tmp_path: Path) -> None:
    """Refused before anything moves; --allow-fewer asks where writes would be refused; status shows a node that is gone."""
    with ClusterProcess(tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, 2, 3)
        done = ottla("cluster", "drain", "3", "-b", servers)
        assert done.returncode == 1
        assert "2 partitions have more replicas than the 2 other nodes can hold" in done.stderr
        assert "--allow-fewer" in done.stderr
        assert {node["replicas"] for node in status(servers)["nodes"]} == {2}
        done = ottla("cluster", "drain", "3", "--allow-fewer", "-b", servers, timeout=90)
        assert done.returncode == 0, done.stderr
        assert {node["id"]: node["replicas"] for node in status(servers)["nodes"]} == {1: 2, 2: 2, 3: 0}
        assert ottla("config", "set", "topic", "t", "min.insync.replicas=2", "-b", servers).returncode == 0
        done = ottla("cluster", "reassign", "t", "--factor", "1", "-b", servers)
        assert done.returncode == 1
        assert "acks=all will be refused in t (min.insync.replicas=2, 1 replicas planned)" in done.stderr
        assert {node["id"]: node["replicas"] for node in status(servers)["nodes"]} == {1: 2, 2: 2, 3: 0}
        done = ottla("cluster", "reassign", "t", "--factor", "1", "--yes", "-b", servers, timeout=90)
        assert done.returncode == 0, done.stderr
        assert "2 partitions were moved, each has 1 replicas" in done.stdout
        assert ottla("cluster", "reassign", "t", "--factor", "3", "-b", servers, timeout=90).returncode == 0
        wait_for(lambda: status(servers)["healthy"], 60, "three replicas are in sync")
        cluster.kill(2)
        wait_for(lambda: not status(servers)["healthy"], 60, "a replica is missing")
        wait_for(lambda: {n["id"]: n["state"] for n in status(servers)["nodes"]}.get(2) == "gone", 60, "node 2 is gone")
        assert ottla("cluster", "status", "-b", servers).returncode == 1


@pytest.mark.timeout(240)
def test_one_node_grows_to_three_and_is_drained_under_load(tmp_path: Path) -> None:
    port = free_ports(9)[0]
    one = up(tmp_path, port, 1)
    assert "ottla is up" in first_line(one)
    servers = f"127.0.0.1:{port}"
    try:
        create(servers, 6, 1)
        one.send_signal(signal.SIGINT)
        assert one.wait(30) == 0
        three = up(tmp_path, port, 3)
        try:
            assert "3 nodes" in first_line(three)
            wait_for(lambda: len(status(servers)["nodes"]) == 3, 60, "each node answers, and is listed a moment later")
            sender = Sender("s", servers, "t", 6, idempotent=True, seed=1, in_flight=1)
            try:
                sender.resume()
                done = ottla("cluster", "balance", "-b", servers, timeout=90)
                assert done.returncode == 0, done.stderr
                assert [node["replicas"] for node in status(servers)["nodes"]] == [2, 2, 2]
                done = ottla("cluster", "reassign", "t", "--factor", "2", "-b", servers, timeout=90)
                assert done.returncode == 0, done.stderr
                done = ottla("cluster", "drain", "2", "-b", servers, timeout=90)
                assert done.returncode == 0, done.stderr
                seen = {node["id"]: node for node in status(servers)["nodes"]}
                assert seen[2]["replicas"] == 0
                assert seen[1]["replicas"] == seen[3]["replicas"] == 6
                refused = ottla("cluster", "drain", "3", "-b", servers)
                assert refused.returncode == 0, refused.stderr  # back to node 2: there is room
                assert {n["id"]: n["replicas"] for n in status(servers)["nodes"]} == {1: 6, 2: 6, 3: 0}
                quorum = ottla("cluster", "quorum", "-b", servers, "-o", "json")
                assert json.loads(quorum.stdout)["leader"] == 1
                sender.pause()
                Reader(servers, [sender]).check()
                assert sender.errors == []
            finally:
                sender.close()
            three.send_signal(signal.SIGINT)
            assert three.wait(60) == 0
        finally:
            if three.poll() is None:
                three.kill()
    finally:
        if one.poll() is None:
            one.kill()


@pytest.mark.timeout(120)
def test_what_cannot_be_is_said_and_changes_nothing(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, 1, 3)
        before = status(servers)
        cases = {
            ("drain", "2"): "the 2 other nodes can hold",
            ("drain", "9"): "no node 9",
            ("reassign", "t", "--replicas", "1,9"): "no such broker",
            ("reassign", "t", "--factor", "4"): "only 3 brokers",
            ("reassign", "u", "--factor", "2"): "no u",
            ("reassign", "t"): "give one of",
        }
        for words, expected in cases.items():
            done = ottla("cluster", *words, "-b", servers)
            assert done.returncode != 0, words
            assert expected in done.stderr, (words, done.stderr)
        assert status(servers)["nodes"] == before["nodes"]
        # An id that is taken by a live node on other disks.
        thief = tmp_path / "thief"
        text = cluster.nodes[2].properties.read_text()
        thief.mkdir()
        port, other = free_ports(2)
        text = text.replace(str(cluster.nodes[2].port), str(port)).replace("broker,controller", "broker")
        own = ("listeners=", "advertised.listeners=", "log.dirs=", "ottla.http.listener=")
        lines = [line for line in text.splitlines() if not line.startswith(own)]
        lines += [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={thief}/data"]
        lines += ["initial.broker.registration.timeout.ms=3000"]
        (thief / "server.properties").write_text("\n".join(lines) + "\n")
        del other
        cluster_id = before["cluster_id"]
        assert ottla("storage", "format", "-t", cluster_id, "-c", thief / "server.properties").returncode == 0
        started = time.monotonic()
        done = ottla("server", "start", thief / "server.properties", timeout=60)
        assert done.returncode == 1
        assert "DUPLICATE_BROKER_REGISTRATION" in done.stderr, done.stderr
        assert time.monotonic() - started < 50
        wait_for(lambda: status(servers)["nodes"] == before["nodes"], 60, "the cluster is as it was")
