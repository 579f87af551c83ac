"""Share groups through Apache Kafka's tools and through ours, in turns on one Ottla: the same words of the same group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.cli.tools import JAVA, Printed, comparable, javas, ours
from tests.share.queue_load import FAST_GROUPS
from tests.support.kafka_tools import run_tool

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(180)]

ConsoleShareConsumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Broker(properties=FAST_GROUPS) as broker:
        yield broker.bootstrap_servers


def said(printed: Printed) -> str:
    assert printed.code == 0, printed
    return printed.out


def both(server: str, *words: str) -> str:
    """What both tools say, which is the same."""
    arguments = ["--bootstrap-server", server, *words]
    answers = [comparable(tool("share-groups", arguments), rows=True) for tool in (javas, ours)]
    assert answers[0] == answers[1]
    return answers[1].out


def read_by_ours(server: str, *words: str) -> list[str]:
    arguments = ["--bootstrap-server", server, "--topic", "letters", "--group", "readers", *words]
    return ours("console-share-consumer", arguments).out.split()


def read_by_java(server: str, *words: str) -> list[str]:
    arguments = ["--bootstrap-server", server, "--topic", "letters", "--group", "readers", *words]
    return run_tool(ConsoleShareConsumer, *arguments, timeout=60).stdout.split()


def test_a_group_from_its_first_record_to_its_end(server: str) -> None:
    at = ["--bootstrap-server", server]
    said(ours("topics", [*at, "--create", "--topic", "letters", "--partitions", "1"]))
    configured = ["--alter", "--entity-type", "groups", "--entity-name", "readers"]
    said(ours("configs", [*at, *configured, "--add-config", "share.auto.offset.reset=earliest"]))
    said(ours("console-producer", [*at, "--topic", "letters"], "\n".join("abcdefghij") + "\n"))
    limit = ["--max-messages", "4", "--timeout-ms", "30000"]
    assert read_by_java(server, *limit) == list("abcd")
    assert read_by_ours(server, *limit) == list("efgh")
    assert "readers" in both(server, "--list")
    assert "Empty" in both(server, "--list", "--state")
    assert "letters" in both(server, "--describe", "--group", "readers")
    both(server, "--describe", "--group", "readers", "--offsets", "--verbose")
    both(server, "--describe", "--group", "readers", "--members", "--verbose")
    both(server, "--describe", "--group", "readers", "--state", "--verbose")
    reset = ["--reset-offsets", "--group", "readers", "--topic", "letters", "--to-earliest"]
    both(server, *reset, "--dry-run")
    both(server, *reset, "--execute")
    assert read_by_ours(server, "--max-messages", "10", "--timeout-ms", "30000") == list("abcdefghij")
    both(server, "--describe", "--group", "none")
    deletion = ["--delete-offsets", "--group", "readers", "--topic", "letters"]
    assert "Successful" in said(ours("share-groups", [*at, *deletion]))
    assert "successful" in said(javas("share-groups", [*at, "--delete", "--group", "readers"]))
    assert "readers" not in both(server, "--list")
    assert "share-groups" in JAVA
