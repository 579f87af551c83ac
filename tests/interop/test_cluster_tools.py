"""Kafka's own tools on a cluster of three Ottla nodes: topics, reassign-partitions, leader-election, metadata-quorum,
features, cluster, log-dirs, replica-verification, and a rolling restart under load.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robustness.cluster_process import ClusterProcess, wait_for
from tests.robustness.load import Reader, Sender
from tests.support.kafka_tools import (
    ClusterTool,
    LeaderElectionCommand,
    LogDirsCommand,
    MetadataQuorumCommand,
    ReassignPartitionsCommand,
    TopicCommand,
    run_tool,
    start_tool,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

ReplicaVerificationTool = "org.apache.kafka.tools.ReplicaVerificationTool"


@pytest.fixture(scope="module")
def cluster(requires_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path_factory.mktemp("cluster")) as running:
        yield running
        for node_id in running.nodes:
            assert "Traceback" not in running.log(node_id)


def tool(main_class: str, cluster: ClusterProcess, *words: str) -> str:
    done = run_tool(main_class, "--bootstrap-server", cluster.bootstrap_servers, *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def described(cluster: ClusterProcess, topic: str) -> list[tuple[str, list[int], list[int]]]:
    """Leader ("none" for a moment), replicas and ISR of each partition, as kafka-topics says."""
    text = tool(TopicCommand, cluster, "--describe", "--topic", topic)
    rows = re.findall(r"Partition: \d+\s+Leader: (\w+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", text)
    return [
        (leader, [int(r) for r in replicas.split(",")], [int(r) for r in isr.split(",")])
        for leader, replicas, isr in rows
    ]


def test_topics_reassignment_election_and_verification(cluster: ClusterProcess, tmp_path: Path) -> None:
    too_many = run_tool(
        TopicCommand, "--bootstrap-server", cluster.bootstrap_servers, "--create", "--topic", "x",
        "--replication-factor", "4",
    )  # fmt: skip
    assert too_many.returncode != 0
    assert "replication factor" in too_many.stderr + too_many.stdout
    tool(TopicCommand, cluster, "--create", "--topic", "t", "--replica-assignment", "1:2,2:3,3:1")
    sender = Sender("s", cluster.bootstrap_servers, "t", 3, idempotent=True, seed=3, in_flight=1)
    try:
        sender.resume()
        plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 2, 1]}]}
        plan["partitions"].append({"topic": "t", "partition": 1, "replicas": [1]})
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(plan))
        tool(ReassignPartitionsCommand, cluster, "--reassignment-json-file", str(file), "--execute")
        wait_for(
            lambda: "is still in progress" not in verified(cluster, file) and "is complete" in verified(cluster, file),
            60,
            "the reassignment ends",
        )
        # The tools ask any broker, which may have heard less than the controller.
        wait_for(lambda: [row[1] for row in described(cluster, "t")] == [[3, 2, 1], [1], [3, 1]], 60, "replicas moved")
        wait_for(lambda: sorted(described(cluster, "t")[0][2]) == [1, 2, 3], 60, "all in sync")
        tool(LeaderElectionCommand, cluster, "--election-type", "preferred", "--topic", "t", "--partition", "0")
        wait_for(lambda: described(cluster, "t")[0][0] == "3", 60, "the preferred replica leads")
        sender.pause()
        Reader(cluster.bootstrap_servers, [sender]).check()
    finally:
        sender.close()
    places = {1: ["t-0", "t-1", "t-2"], 2: ["t-0"], 3: ["t-0", "t-2"]}
    wait_for(lambda: held(cluster, "t") == places, 60, "each broker holds its replicas and no other")
    wait_for(
        lambda: not list(cluster.nodes[2].directory.glob("data/t-1")), 60, "the replica that moved away is deleted"
    )
    verification = start_tool(
        ReplicaVerificationTool, "--broker-list", cluster.bootstrap_servers, "--topics-include", "t",
        "--report-interval-ms", "500",
    )  # fmt: skip
    lines = watched(verification, "max lag is", 3)
    assert "max lag is 0" in lines[-1], lines


def held(cluster: ClusterProcess, topic: str) -> dict[int, list[str]]:
    """Broker -> its replicas, as kafka-log-dirs says."""
    found = json.loads(tool(LogDirsCommand, cluster, "--describe", "--topic-list", topic).splitlines()[-1])
    return {
        broker["broker"]: sorted(p["partition"] for d in broker["logDirs"] for p in d["partitions"])
        for broker in found["brokers"]
    }


def verified(cluster: ClusterProcess, file: Path) -> str:
    return tool(ReassignPartitionsCommand, cluster, "--reassignment-json-file", str(file), "--verify")


def watched(process: subprocess.Popen[str], word: str, count: int) -> list[str]:
    """The first lines with `word`; the tool runs for ever and is ended."""
    assert process.stdout is not None
    found: list[str] = []
    deadline = time.monotonic() + 60
    try:
        while len(found) < count and time.monotonic() < deadline:
            line = process.stdout.readline()
            if not line:
                break
            if word in line:
                found.append(line)
    finally:
        process.kill()
        process.communicate()
    assert len(found) == count
    return found


def test_quorum_and_cluster(cluster: ClusterProcess) -> None:
    text = tool(MetadataQuorumCommand, cluster, "describe", "--status")
    assert re.search(r"CurrentVoters:.*1.*2.*3", text)
    replication = tool(MetadataQuorumCommand, cluster, "describe", "--replication")
    assert len(re.findall(r"(Leader|Follower)\s*$", replication, re.MULTILINE)) == 3
    done = run_tool(ClusterTool, "cluster-id", "--bootstrap-server", cluster.bootstrap_servers)
    assert "Cluster ID: " in done.stdout
    wait_for(lambda: endpoints(cluster) == ["1", "2", "3"], 60, "all brokers are listed")


def endpoints(cluster: ClusterProcess) -> list[str]:
    listed = run_tool(ClusterTool, "list-endpoints", "--bootstrap-server", cluster.bootstrap_servers)
    return sorted(re.findall(r"^([123])\s+127\.0\.0\.1", listed.stdout, re.MULTILINE))


def test_a_rolling_restart_is_not_noticed(cluster: ClusterProcess) -> None:
    tool(TopicCommand, cluster, "--create", "--topic", "roll", "--partitions", "3", "--replication-factor", "3")
    sender = Sender("r", cluster.bootstrap_servers, "roll", 3, idempotent=True, seed=5, in_flight=1)
    try:
        sender.resume()
        for node_id in cluster.nodes:
            cluster.stop(node_id)
            cluster.start(node_id)
            cluster.wait_up()
            wait_for(lambda: [len(isr) for _, _, isr in described(cluster, "roll")] == [3, 3, 3], 60, "back in sync")
        sender.pause()
        assert sender.errors == []
        Reader(cluster.bootstrap_servers, [sender]).check()
    finally:
        sender.close()
