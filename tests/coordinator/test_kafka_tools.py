"""Groups through Apache Kafka's own tools: console and perf consumer, kafka-consumer-groups."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ottla.testing import Broker
from tests.support.kafka_tools import (
    ConsoleConsumer,
    ConsoleProducer,
    ConsumerGroupCommand,
    ConsumerPerformance,
    TopicCommand,
    start_tool,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

Result = subprocess.CompletedProcess[str]
Tool = Callable[..., Result]
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["ottla", "apache"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same test on both: what it expects is what Apache Kafka does."""
    if request.param == "apache":
        yield request.getfixturevalue("apache_kafka").bootstrap_servers
    else:
        with Broker() as running:
            yield running.bootstrap_servers


@pytest.fixture(scope="module")
def tool(kafka_tool: Tool, servers: str) -> Tool:
    def run(main_class: str, *args: str, check: bool = True, **options: object) -> Result:
        result = kafka_tool(main_class, "--bootstrap-server", servers, *args, **options)
        assert not check or result.returncode == 0, result.stderr + result.stdout
        return result

    return run


@pytest.fixture(scope="module")
def topic(tool: Tool) -> str:
    """Another one each time: a module may be left and come to again, and Apache Kafka's node stays."""
    name = f"words-{next(_numbers)}"
    tool(TopicCommand, "--create", "--topic", name, "--partitions", "2")
    tool(ConsoleProducer, "--topic", name, input="one\ntwo\nthree\nfour\n")
    return name


def groups(tool: Tool, *args: str, check: bool = True) -> str:
    result = tool(ConsumerGroupCommand, *args, check=check)
    return result.stdout + result.stderr


def consume(tool: Tool, topic: str, group: str, count: int) -> list[str]:
    result = tool(
        ConsoleConsumer,
        *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(count)),
        *("--timeout-ms", "20000"),
    )
    return result.stdout.split()


def lag(description: str, topic: str) -> dict[int, tuple[str, str, str]]:
    """Partition -> current offset, log end offset, lag, as `--describe` prints them."""
    rows = re.findall(rf"{topic}\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)", description)
    return {int(partition): (current, end, behind) for partition, current, end, behind in rows}


def test_the_console_consumer_reads_in_a_group(tool: Tool, topic: str) -> None:
    assert sorted(consume(tool, topic, "console", 4)) == ["four", "one", "three", "two"]
    assert "console" in groups(tool, "--list").split()
    described = lag(groups(tool, "--describe", "--group", "console"), topic)
    assert described.keys() == {0, 1}
    assert all(behind == "0" for _, _, behind in described.values())


def test_the_perf_consumer_reads_in_a_group(tool: Tool, topic: str) -> None:
    result = tool(ConsumerPerformance, "--topic", topic, "--group", "perf", "--num-records", "4")
    assert "data.consumed.in.nMsg" in result.stdout


def test_offsets_are_reset_and_deleted(tool: Tool, topic: str) -> None:
    consume(tool, topic, "reset", 4)
    text = groups(tool, "--reset-offsets", "--group", "reset", "--topic", topic, "--to-earliest", "--execute")
    assert len(re.findall(rf"reset\s+{topic}\s+\d\s+0", text)) == 2
    assert all(current == "0" for current, _, _ in lag(groups(tool, "--describe", "--group", "reset"), topic).values())
    assert sorted(consume(tool, topic, "reset", 4)) == ["four", "one", "three", "two"]
    text = groups(tool, "--delete-offsets", "--group", "reset", "--topic", topic)
    assert text.count("Successful") == 2
    assert "Deletion of requested consumer groups ('reset') was successful" in groups(
        tool, "--delete", "--group", "reset"
    )
    assert "reset" not in groups(tool, "--list").split()
    text = groups(tool, "--describe", "--group", "reset", check=False)
    assert "GroupIdNotFoundException: Group reset not found." in text


def test_a_group_with_members(tool: Tool, servers: str, topic: str) -> None:
    running = start_tool(
        ConsoleConsumer,
        *("--bootstrap-server", servers, "--topic", topic, "--group", "busy", "--from-beginning"),
    )
    try:
        assert running.stdout is not None
        assert sorted(running.stdout.readline().strip() for _ in range(4)) == ["four", "one", "three", "two"]
        state = groups(tool, "--describe", "--group", "busy", "--state")
        assert re.search(r"busy\s+127.0.0.1:\d+\s+\(1\)\s+range\s+Stable\s+1", state), state
        members = groups(tool, "--describe", "--group", "busy", "--members", "--verbose")
        assert f"{topic}:0,1" in members, members
        assert "127.0.0.1" in members
        assert re.search(r"busy\s+Stable", groups(tool, "--list", "--state", "Stable"))
        assert re.search(r"busy\s+Classic", groups(tool, "--list", "--type", "classic"))
        refused = groups(tool, "--delete", "--group", "busy", check=False)
        assert "GroupNotEmptyException" in refused
        refused = groups(tool, "--delete-offsets", "--group", "busy", "--topic", topic, check=False)
        assert "GroupSubscribedToTopicException" in refused or "Error" in refused
        refused = groups(
            tool, "--reset-offsets", "--group", "busy", "--topic", topic, "--to-latest", "--execute", check=False
        )
        assert "is inactive" in refused or "current state is Stable" in refused
    finally:
        running.terminate()
        running.communicate(timeout=30)
    assert re.search(r"busy\s+Empty", groups(tool, "--list", "--state"))
