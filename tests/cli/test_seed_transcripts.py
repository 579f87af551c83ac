"""A person at a terminal (seed 003): every command of the course verbatim, with the shims on the PATH.

The same script runs against Apache Kafka with its own tools: what is expected of Ottla is what Kafka prints. Only the
address differs from the course's (localhost:9092), and ids, times and consumer ids are whatever they are. Kafka 4.3
prints a warning where the course uses a flag that has a newer name since, and wider or narrower columns in one table.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka
from tests.support.caught_up import catch_up
from tests.support.kafka_tools import SHARED_CLASSES, jvm_command, run_tool

from .tools import JAVA

pytestmark = [pytest.mark.timeout(180)]
WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
ROUND_ROBIN = "--property partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner"
TYPED = ["hello", "my name is Kafka", "one", "2", "3", "4", "5"]
Start = Callable[[list[str]], list[str]]


class Terminal:
    """Runs the course's commands; `command_for` turns a tool's name into a program."""

    def __init__(self, server: ApacheKafka, command_for: Start, environment: dict[str, str]) -> None:
        self._server = server
        self._command_for = command_for
        self._environment = environment
        self._open: list[subprocess.Popen[str]] = []

    def _words(self, line: str) -> list[str]:
        return [word.replace("localhost:9092", self._server.bootstrap_servers) for word in shlex.split(line)]

    def start(self, line: str) -> subprocess.Popen[str]:
        words = self._words(line)
        process = subprocess.Popen(
            self._command_for(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        self._open.append(process)
        return process

    def run(self, line: str, typed: str = "", timeout: float = 60) -> str:
        """When the broker has heard of what the commands before it have changed, as a person is slow enough for."""
        catch_up(self._server.bootstrap_servers)
        if self._command_for is _java:  # in the JVM that is there: a start of one takes longer than the command
            main_class, arguments = _java_tool(self._words(line))
            done = run_tool(main_class, *arguments, input=typed, timeout=timeout)
            return cleaned(done.stderr + done.stdout)
        process = self.start(line)
        out, _ = process.communicate(typed, timeout=timeout)
        return cleaned(out)

    def close(self) -> None:
        for process in self._open:
            if process.poll() is None:
                process.kill()
            process.communicate()


def cleaned(text: str) -> str:
    kept = [
        line.rstrip()
        for line in text.splitlines()
        if "is deprecated and will be removed" not in line
        and "KIP-848" not in line
        and not line.startswith("Processed a total")
    ]
    return "\n".join(kept).strip("\n")


def until(process: subprocess.Popen[str], wanted: int, seconds: float = 40) -> list[str]:
    """So many lines of a consumer that goes on; the caller ends it."""
    lines: list[str] = []
    stream: IO[str] | None = process.stdout
    assert stream is not None
    deadline = time.monotonic() + seconds
    while len(lines) < wanted and time.monotonic() < deadline:
        line = stream.readline()
        if not line:
            break
        if cleaned(line):
            lines.append(cleaned(line))
    return lines


def interrupted(process: subprocess.Popen[str]) -> int:
    """Ctrl-C; the exit code that a shell would see."""
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert "Traceback" not in out
    return process.returncode


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.interop)])
def terminal(request: pytest.FixtureRequest, shims: Path, tmp_path: Path) -> Iterator[Terminal]:
    environment = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}"}
    properties = {"offsets.topic.num.partitions": "2"}
    server: ApacheKafka
    if request.param == "ottla":
        server, command_for = OttlaServer(tmp_path / "ottla", properties=properties), list
    else:
        request.getfixturevalue("requires_apache_kafka")
        server, command_for = ApacheKafka(tmp_path / "apache", properties=properties), _java
    server.start()
    opened = Terminal(server, command_for, environment)
    try:
        yield opened
    finally:
        opened.close()
        server.stop() if request.param == "ottla" else server.kill()


def _java_tool(words: list[str]) -> tuple[str, list[str]]:
    tool = words[0].removeprefix("kafka-").removesuffix(".sh")
    # Kafka 4 has no kafka.tools.DefaultMessageFormatter any more; Ottla takes the course's spelling too.
    rest = [
        word.replace("kafka.tools.DefaultMessageFormatter", "org.apache.kafka.tools.consumer.DefaultMessageFormatter")
        for word in words[1:]
    ]
    return JAVA[tool], rest


def _java(words: list[str]) -> list[str]:
    main_class, arguments = _java_tool(words)
    return jvm_command(
        ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", SHARED_CLASSES), main_class, *arguments
    )


def test_create_topic(terminal: Terminal) -> None:
    run = terminal.run
    base = "kafka-topics.sh --bootstrap-server localhost:9092"
    assert run(f"{base} --create --topic first_topic") == f"{WARNING}\nCreated topic first_topic."
    assert run(f"{base} --create --topic second_topic --partitions 5") == f"{WARNING}\nCreated topic second_topic."
    assert run(f"{base} --list").splitlines() == ["first_topic", "second_topic"]
    described = run(f"{base} --describe --topic second_topic").splitlines()
    assert re.fullmatch(
        r"Topic: second_topic\tTopicId: [\w-]{22}\tPartitionCount: 5\tReplicationFactor: 1\tConfigs: .*", described[0]
    )
    for partition, line in enumerate(described[1:]):
        assert line.startswith(f"\tTopic: second_topic\tPartition: {partition}\tLeader: 1\tReplicas: 1\tIsr: 1")
    assert len(described) == 6
    assert run(f"{base} --delete --topic first_topic") == ""
    assert run(f"{base} --delete --topic second_topic") == ""
    assert run(f"{base} --list") == ""


def test_producer_and_consumer(terminal: Terminal) -> None:
    produce = "kafka-console-producer.sh --bootstrap-server localhost:9092 --topic first_topic"
    consume = "kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic first_topic --from-beginning"
    terminal.run("kafka-topics.sh --bootstrap-server localhost:9092 --create --topic first_topic")
    assert terminal.run(produce, "Hello world\nI am using Kafka\n") == ""
    consumer = terminal.start(consume)
    assert until(consumer, 2) == ["Hello world", "I am using Kafka"]
    assert interrupted(consumer) == 130
    keyed = terminal.run(
        f"{produce} --property parse.key=true --property key.separator=:",
        "example key: example value\nname: Stephane\nasdfsd\n",
    )
    assert "No key separator found on line number 3: 'asdfsd'" in keyed
    consumer = terminal.start(consume)
    assert until(consumer, 4) == ["Hello world", "I am using Kafka", " example value", " Stephane"]
    assert interrupted(consumer) == 130


def test_partitions_and_groups(terminal: Terminal) -> None:
    base = "kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic second_topic"
    groups = "kafka-consumer-groups.sh --bootstrap-server localhost:9092"
    terminal.run("kafka-topics.sh --bootstrap-server localhost:9092 --create --topic second_topic --partitions 3")
    produce = f"kafka-console-producer.sh --bootstrap-server localhost:9092 --topic second_topic {ROUND_ROBIN}"
    assert terminal.run(produce, "".join(f"{line}\n" for line in TYPED)) == ""
    consumer = terminal.start(f"{base} --from-beginning")
    assert sorted(until(consumer, 7)) == sorted(TYPED)
    assert interrupted(consumer) == 130
    printed = "--property print.key=true --property print.timestamp=true --property print.value=true --property print.partition=true"
    consumer = terminal.start(f"{base} --from-beginning --formatter kafka.tools.DefaultMessageFormatter {printed}")
    shown = until(consumer, 7)
    interrupted(consumer)
    assert sorted(line.split("\t")[-1] for line in shown) == sorted(TYPED)
    assert all(re.fullmatch(r"CreateTime:\d{13}\tPartition:[012]\tnull\t.+", line) for line in shown)

    first = terminal.start(f"{base} --from-beginning --group my-first-app")
    assert sorted(until(first, 7)) == sorted(TYPED)
    second = terminal.start(f"{base} --from-beginning --group my-second-app")
    assert sorted(until(second, 7)) == sorted(TYPED)
    assert interrupted(second) == 130
    listed = terminal.run(f"{groups} --list").split()  # a nameless consumer's group goes a moment after it
    assert sorted(name for name in listed if not name.startswith("console-consumer-")) == [
        "my-first-app",
        "my-second-app",
    ]
    member = r"console-consumer-[0-9a-f-]{36} /127\.0\.0\.1 +console-consumer"
    table = described(
        terminal, groups, "my-first-app", lambda lines: lines and all(re.search(member, row) for row in lines[1:])
    )
    assert table[0].split() == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    ]  # fmt: skip
    assert [row.split()[:3] for row in table[1:]] == [["my-first-app", "second_topic", str(n)] for n in range(3)]
    gone = described(terminal, groups, "my-second-app", lambda lines: all(row.split()[6] == "-" for row in lines[1:]))
    assert "Consumer group 'my-second-app' has no active members." in terminal.run(
        f"{groups} --describe --group my-second-app"
    )
    rows = [row.split() for row in gone if row.startswith("my-second-app")]
    assert [row[2] for row in rows] == ["0", "1", "2"]
    assert all(row[3] == row[4] and row[5:] == ["0", "-", "-", "-"] for row in rows)

    other = terminal.start(f"{base} --from-beginning --group my-first-app")
    table = described(terminal, groups, "my-first-app", lambda lines: len({row.split()[6] for row in lines[1:]}) == 2)
    assert [row.split()[:3] for row in sorted(table[1:])] == [
        ["my-first-app", "second_topic", str(n)] for n in range(3)
    ]
    assert interrupted(other) == 130
    assert interrupted(first) == 130
    reset_offsets(terminal, groups, base)


def described(terminal: Terminal, groups: str, name: str, ready: Callable[[list[str]], object]) -> list[str]:
    """The describe table once the group has come to rest."""
    deadline = time.monotonic() + 40
    while True:
        text = terminal.run(f"{groups} --describe --group {name}")
        lines = [line for line in text.splitlines() if line.startswith(("GROUP", name))]
        if (lines and ready(lines)) or time.monotonic() > deadline:
            assert lines, text
            assert ready(lines), text
            return lines


def reset_offsets(terminal: Terminal, groups: str, base: str) -> None:
    wanted = [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        *(["my-first-app", "second_topic", str(n), "0"] for n in range(3)),
    ]
    described(terminal, groups, "my-first-app", lambda lines: all(row.split()[6] == "-" for row in lines[1:]))
    for action in ("--dry-run", "--execute"):
        plan = terminal.run(
            f"{groups} --group my-first-app --topic second_topic --reset-offsets --to-earliest {action}"
        )
        rows = [row.split() for row in plan.splitlines() if row.strip()]
        assert [rows[0], *sorted(rows[1:])] == wanted
    after = terminal.run(f"{groups} --describe --group my-first-app")
    assert "Consumer group 'my-first-app' has no active members." in after
    rows = [row.split() for row in after.splitlines() if row.startswith("my-first-app")]
    assert [(row[2], row[3], row[4] == row[5]) for row in rows] == [(str(n), "0", True) for n in range(3)]
    again = terminal.start(f"{base} --group my-first-app")
    assert sorted(until(again, 7)) == sorted(TYPED)
    assert interrupted(again) == 130
    described(terminal, groups, "my-first-app", lambda lines: all(row.split()[5] == "0" for row in lines[1:]))
