"""A real Kafka Streams 4.3.1 application on Ottla, with group.protocol=streams and exactly_once_v2.

Two instances count words through a repartition topic into a store with a changelog; one is killed in the middle. What
comes out must equal a count made without Kafka. Then Apache Kafka's own kafka-streams-groups on the same group.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.cli.tools import ours
from tests.robustness.cluster_process import ClusterProcess
from tests.robustness.server_process import ServerProcess
from tests.support.streams_application import INPUT, OUTPUT, Counts, StreamsInstance, await_that

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

APPLICATION = "word-count"
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
PARTITIONS = 3
WORDS = ["all", "streams", "flow", "to", "the", "sea", "yet", "it", "is", "not", "full"]
PROPERTIES = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""Otherwise a death is noticed after 45 s, and an internal topic 5 s after it was made."""
DESCRIPTIONS = [
    f"--describe --group {APPLICATION} {words}"
    for words in ("", "--verbose", "--members", "--members --verbose", "--state", "--state --verbose")
]
Tool = Callable[..., CompletedProcess[str]]


def produce(server: ServerProcess | ClusterProcess, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number, line in enumerate(lines):
        producer.produce(INPUT, line, str(number))
    assert producer.flush(30) == 0


def lines(count: int, seed: int) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=8)) for _ in range(count)]


def counted(all_lines: list[str]) -> Counter[str]:
    return Counter(word for line in all_lines for word in line.split(" "))


def run_tool(tool: Tool, server: ServerProcess, *arguments: str) -> str:
    done = tool(TOOL, "--bootstrap-server", server.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return re.sub(r"[ \t]+", " ", done.stdout)


def same_words(tool: Tool, server: ServerProcess, *arguments: str) -> None:
    """Our own kafka-streams-groups prints the same rows as Apache Kafka's, in any order."""
    call = ("--bootstrap-server", server.bootstrap_servers, *arguments)
    java, printed = tool(TOOL, *call), ours("streams-groups", call)
    assert printed.code == java.returncode == 0, printed
    assert _lines(printed.out) == _lines(java.stdout)


def _lines(text: str) -> list[str]:
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


def check(counts: Counts, expected: Counter[str]) -> None:
    """Every update of every word once, in order: nothing lost, nothing counted twice."""
    assert counts.updates == {word: list(range(1, total + 1)) for word, total in expected.items()}


def prepare(server: ServerProcess | ClusterProcess, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    topics = [NewTopic(INPUT, PARTITIONS, replicas), NewTopic(OUTPUT, PARTITIONS, replicas)]
    for future in admin.create_topics(topics).values():
        future.result(20)


@pytest.mark.timeout(300)
def test_word_count_with_a_death_in_the_middle(tmp_path: Path, kafka_tool: Tool) -> None:
    first, second = lines(150, 1), lines(150, 2)
    half, whole = counted(first), counted(first + second)
    with ServerProcess(tmp_path, properties=PROPERTIES) as server:
        prepare(server)
        produce(server, first)
        counts = Counts(server.bootstrap_servers, PARTITIONS)
        address = server.bootstrap_servers
        with (
            StreamsInstance(address, APPLICATION, "a", tmp_path, application_server="here:1") as doomed,
            StreamsInstance(address, APPLICATION, "b", tmp_path, application_server="there:2") as survivor,
        ):
            for instance in (doomed, survivor):
                await_that(partial(instance.says, "state RUNNING"), f"{instance.name} runs", 90)
            await_that(partial(counts.have, half.total() // 4), "the first words are counted", 90)
            produce(server, second[:75])
            doomed.kill()
            produce(server, second[75:])
            await_that(partial(counts.have, whole.total()), "all words are counted", 120)
            check(counts, whole)
            describe_running(kafka_tool, server)
            survivor.close()
            assert "closed" in survivor.log()
        tools_on_the_empty_group(kafka_tool, server)
        counts.close()
        server.assert_no_traceback()


def describe_running(tool: Tool, server: ServerProcess) -> None:
    assert run_tool(tool, server, "--list").split() == [APPLICATION]
    assert f"{APPLICATION} Stable" in run_tool(tool, server, "--list", "--state")
    assert run_tool(tool, server, "--list", "--state", "Empty").split() == ["GROUP", "STATE"]
    described = run_tool(tool, server, "--describe", "--group", APPLICATION)
    rows = re.findall(rf"^{APPLICATION} ({INPUT}|\S*-repartition) (\d) 0$", described, re.MULTILINE)
    assert len(rows) == 2 * PARTITIONS, described
    members = run_tool(tool, server, "--describe", "--group", APPLICATION, "--members", "--verbose")
    tasks = "ACTIVE: 0:[0,1,2]; 1:[0,1,2];"
    assert f" b-StreamThread-1-consumer {tasks} TARGET-{tasks}" in members, members
    state = run_tool(tool, server, "--describe", "--group", APPLICATION, "--state")
    assert re.search(rf"^{APPLICATION} .* Stable 1 *$", state, re.MULTILINE), state
    for words in (
        "--list",
        "--list --state",
        "--list --state Stable",
        *DESCRIPTIONS,
        f"--delete --group {APPLICATION}",
    ):
        same_words(tool, server, *words.split())
    busy = tool(TOOL, "--bootstrap-server", server.bootstrap_servers, "--delete", "--group", APPLICATION)
    assert "is not EMPTY" in busy.stdout + busy.stderr


def tools_on_the_empty_group(tool: Tool, server: ServerProcess) -> None:
    await_that(lambda: "Empty" in run_tool(tool, server, "--list", "--state"), "the group is empty", 30)
    assert "GROUP" not in run_tool(tool, server, "--describe", "--group", APPLICATION, "--members")
    scope = ("--group", APPLICATION, "--reset-offsets", "--all-input-topics", "--to-earliest")
    planned = run_tool(tool, server, *scope, "--dry-run")
    assert re.findall(rf"{INPUT} (\d) (\d+)", planned) == [(str(index), "0") for index in range(PARTITIONS)]
    same_words(tool, server, *scope, "--dry-run")
    for words in ("--list --state", *DESCRIPTIONS):
        same_words(tool, server, *words.split())
    run_tool(tool, server, *scope, "--execute", "--delete-all-internal-topics")
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    assert not [name for name in admin.list_topics(timeout=20).topics if name.startswith(APPLICATION)]
    deleted = ours(
        "streams-groups", ("--bootstrap-server", server.bootstrap_servers, "--delete", "--group", APPLICATION)
    )
    assert deleted.out == f"Deletion of requested streams groups ('{APPLICATION}') was successful.\n"
    same_words(tool, server, "--delete", "--group", APPLICATION)
    assert run_tool(tool, server, "--list").split() == []


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_word_count_with_many_deaths(tmp_path: Path) -> None:
    """Instances with two threads each are killed in turn, now and then the broker too; standby copies on."""
    rounds = int(os.environ.get("KILLS", "10"))
    expected: Counter[str] = Counter()
    properties = {**PROPERTIES, "group.streams.num.standby.replicas": "1"}
    with ServerProcess(tmp_path, properties=properties) as server:
        prepare(server)
        counts = Counts(server.bootstrap_servers, PARTITIONS)

        def instance(number: int) -> StreamsInstance:
            return StreamsInstance(server.bootstrap_servers, APPLICATION, f"i{number}", tmp_path, threads=2)

        running = [instance(0), instance(1)]
        try:
            for number in range(rounds):
                await_that(partial(running[-1].says, "state RUNNING"), "the new instance runs", 120)
                more = lines(100, number)
                expected += counted(more)
                produce(server, more[:50])
                running.pop(0).kill()
                if number % 3 == 2:
                    server.kill()
                    server.start()
                produce(server, more[50:])
                running.append(instance(number + 2))
                await_that(partial(counts.have, expected.total()), f"round {number} is counted", 180)
                check(counts, expected)
        finally:
            for application in running:
                application.kill()
        counts.close()
        server.assert_no_traceback()


def coordinator(cluster: ClusterProcess) -> int:
    state = ours(
        "streams-groups",
        ("--bootstrap-server", cluster.bootstrap_servers, "--describe", "--group", APPLICATION, "--state"),
    )
    match = re.search(r"\((\d)\)", state.out)
    assert match, state
    return int(match[1])


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_word_count_on_three_nodes_whose_coordinator_dies(tmp_path: Path) -> None:
    """Kafka's own settings, heartbeats every 5 s; each node that coordinates the group dies and comes back."""
    expected: Counter[str] = Counter()
    with ClusterProcess(tmp_path) as cluster:
        prepare(cluster, replicas=3)
        counts = Counts(cluster.bootstrap_servers, PARTITIONS)
        address = cluster.bootstrap_servers
        with (
            StreamsInstance(address, APPLICATION, "a", tmp_path, replication_factor="3") as first,
            StreamsInstance(address, APPLICATION, "b", tmp_path, replication_factor="3") as second,
        ):
            for instance in (first, second):
                await_that(partial(instance.says, "state RUNNING"), f"{instance.name} runs", 120)
            for number in range(3):
                more = lines(100, number)
                expected += counted(more)
                produce(cluster, more[:50])
                dying = coordinator(cluster)
                cluster.kill(dying)
                produce(cluster, more[50:])
                await_that(partial(counts.have, expected.total()), f"round {number} is counted", 120)
                check(counts, expected)
                cluster.start(dying)
                cluster.wait_up()
        counts.close()
        for node_id in cluster.nodes:
            assert "Traceback" not in cluster.log(node_id)
