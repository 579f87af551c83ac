"""Consumer groups through Apache Kafka's own tools: the same commands on both servers, and the same words."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ottla.testing import Broker
from tests.support.kafka_tools import (
    ConfigCommand,
    ConsoleConsumer,
    ConsoleProducer,
    ConsumerGroupCommand,
    GroupsCommand,
    TopicCommand,
    start_tool,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

Tool = Callable[..., subprocess.CompletedProcess[str]]
GROUPS = {"new": "consumer", "old": "classic"}


@pytest.fixture(scope="session")  # a module may be left and come to again, and Apache Kafka's node stays
def servers(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Ottla and Apache Kafka, each with a topic, four records, and a group of each protocol that has read them."""
    apache = request.getfixturevalue("apache_kafka").bootstrap_servers
    tool = request.getfixturevalue("kafka_tool")
    with Broker() as running:
        addresses = {"apache": apache, "ottla": running.bootstrap_servers}
        for address in addresses.values():
            run(tool, TopicCommand, address, "--create", "--topic", "letters", "--partitions", "2")
            produced = tool(
                ConsoleProducer,
                *("--bootstrap-server", address, "--topic", "letters", "--property", "parse.key=true"),
                *("--property", "key.separator=:"),
                input="1:a\n2:b\n3:c\n4:d\n",
            )
            assert produced.returncode == 0, produced.stderr
            for group, protocol in GROUPS.items():
                assert sorted(consume(tool, address, group, protocol)) == ["a", "b", "c", "d"]
        yield addresses


def run(tool: Tool, main_class: str, address: str, *args: str, check: bool = True) -> str:
    result = tool(main_class, "--bootstrap-server", address, *args)
    assert not check or result.returncode == 0, result.stderr + result.stdout
    return result.stdout + result.stderr


def consume(tool: Tool, address: str, group: str, protocol: str) -> list[str]:
    text = run(
        tool,
        ConsoleConsumer,
        address,
        *("--topic", "letters", "--group", group, "--from-beginning", "--max-messages", "4", "--timeout-ms", "30000"),
        *("--command-property", f"group.protocol={protocol}"),
    )
    return [line for line in text.split("\n") if len(line) == 1]


def masked(text: str) -> list[str]:
    """Without what differs by nature: ids, ports, and the widths that follow from them."""
    text = re.sub(r"127\.0\.0\.1:\d+|localhost:\d+", "HOST", text)
    text = re.sub(r"console-consumer-[\w-]+|[\w-]{22}(?=\s)", "ID", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.split("\n")]
    return sorted(line for line in lines if line and not re.search(r"\b(words|busy|console|perf|reset)\b", line))


COMMANDS = [
    (ConsumerGroupCommand, "--list"),
    (ConsumerGroupCommand, "--list --state"),
    (ConsumerGroupCommand, "--list --type"),
    (ConsumerGroupCommand, "--list --type consumer --state empty"),
    (ConsumerGroupCommand, "--describe --group new"),
    (ConsumerGroupCommand, "--describe --group new --state"),
    (ConsumerGroupCommand, "--describe --group new --state --verbose"),
    (ConsumerGroupCommand, "--describe --group new --members --verbose"),
    (ConsumerGroupCommand, "--describe --group nobody"),
    (ConsumerGroupCommand, "--reset-offsets --group new --topic letters --to-earliest --dry-run"),
    (GroupsCommand, "--list"),
    (GroupsCommand, "--list --consumer"),
    (GroupsCommand, "--list --group-type consumer"),
    (GroupsCommand, "--list --protocol consumer"),
    (ConfigCommand, "--describe --entity-type groups --entity-name new"),
]


@pytest.mark.parametrize(("main_class", "command"), COMMANDS, ids=lambda value: value.rpartition(".")[2][:40])
def test_the_same_words(servers: dict[str, str], kafka_tool: Tool, main_class: str, command: str) -> None:
    texts = {name: run(kafka_tool, main_class, at, *command.split(), check=False) for name, at in servers.items()}
    if command.startswith("--list"):
        texts = {name: _only_our_groups(text) for name, text in texts.items()}
    assert masked(texts["ottla"]) == masked(texts["apache"])


def _only_our_groups(text: str) -> str:
    """The node of Apache Kafka is shared: other tests have groups on it."""
    return "\n".join(line for line in text.split("\n") if line.split()[:1] in [["GROUP"], *([name] for name in GROUPS)])


def test_a_group_with_members(servers: dict[str, str], kafka_tool: Tool) -> None:
    """Described while the Java consumer is in it, in each of the tool's ways; then changed, and refused alike."""
    said: dict[str, dict[str, list[str]]] = {}
    for name, address in servers.items():
        running = start_tool(
            ConsoleConsumer,
            *("--bootstrap-server", address, "--topic", "letters", "--group", "live", "--from-beginning"),
            *("--command-property", "group.protocol=consumer"),
        )
        try:
            assert running.stdout is not None
            assert sorted(running.stdout.readline().strip() for _ in range(4)) == ["a", "b", "c", "d"]
            commands = (
                "--describe --group live --state --verbose",
                "--describe --group live --members --verbose",
                "--list --state stable --type consumer",
                "--delete --group live",
                "--delete-offsets --group live --topic letters",
                "--reset-offsets --group live --topic letters --to-latest --execute",
            )
            said[name] = {
                command: masked(run(kafka_tool, ConsumerGroupCommand, address, *command.split(), check=False))
                for command in commands
            }
        finally:
            running.terminate()
            running.communicate(timeout=30)
    assert said["ottla"] == said["apache"]
    assert any("uniform" in line for line in said["ottla"]["--describe --group live --state --verbose"])


def test_offsets_are_reset_and_the_group_is_deleted(servers: dict[str, str], kafka_tool: Tool) -> None:
    said: dict[str, list[list[str]]] = {}
    for name, address in servers.items():
        commands = (
            "--reset-offsets --group new --topic letters --to-earliest --execute",
            "--describe --group new",
            "--delete-offsets --group new --topic letters:0",
            "--delete --group new",
            "--describe --group new",
        )
        said[name] = [
            masked(run(kafka_tool, ConsumerGroupCommand, address, *command.split(), check=False))
            for command in commands
        ]
        assert sorted(consume(kafka_tool, address, "new", "consumer")) == ["a", "b", "c", "d"]
    assert said["ottla"] == said["apache"]
