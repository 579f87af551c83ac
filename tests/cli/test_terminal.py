"""What only a terminal sees: progress bars that move, and colours. The same commands into a pipe print neither.

A pseudo-terminal is one: isatty() is true there, and what is written can be read back.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.client.topics import list_topics
from ottla.testing import Broker
from tests.robustness.test_cluster_commands import first_line, up
from tests.support.ports import free_ports

RECORDS = 20_000
ESCAPE = "\x1b"


def environment(broker: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "CI", "FORCE_COLOR"}}
    sources = str(Path(__file__).parents[2] / "src")
    return {**kept, "TERM": "xterm", "OTTLA_BOOTSTRAP_SERVERS": broker, "PYTHONPATH": sources, "COLUMNS": "100", **more}


def on_a_terminal(broker: str, *words: str, **more: str) -> str:
    """All that the command writes to its terminal, until it ends; it must end well."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(broker, **more),
    ) as process:  # fmt: skip
        os.close(theirs)
        seen = b""
        try:
            while part := _part(ours):
                seen += part
            assert process.wait(60) == 0, seen
        finally:
            os.close(ours)
            process.kill()
    return seen.decode()


def _part(terminal: int) -> bytes:
    """Nothing when the other end is closed; Linux says so with an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def in_a_pipe(broker: str, *words: str) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        env=environment(broker),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with Broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for future in admin.create_topics([NewTopic("t", 1, 1), NewTopic("copy", 1, 1)]).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "queue.buffering.max.messages": RECORDS})
        for number in range(RECORDS):
            producer.produce("t", f"{number:0100}".encode())
        assert producer.flush(60) == 0
        yield running.bootstrap_servers


def shares(screen: str) -> list[int]:
    return [int(text) for text in re.findall(r"(\d+)%", screen)]


def moves(screen: str) -> bool:
    """A bar was drawn more than once, on its own line, and came to its end."""
    found = shares(screen)
    return len(set(found)) > 2 and found == sorted(found) and found[-1] == 100 and "\r" in screen


def test_bars_of_export_and_import(broker: str, tmp_path: Path) -> None:
    file = str(tmp_path / "t.jsonl")
    assert moves(on_a_terminal(broker, "export", "t", file))
    assert moves(on_a_terminal(broker, "import", file, "copy"))
    for words in (("export", "t", file), ("import", file, "copy")):
        piped = in_a_pipe(broker, *words)
        assert shares(piped) == []
        assert ESCAPE not in piped
        assert "\r" not in piped


def test_colours_only_on_a_terminal(broker: str) -> None:
    assert f"{ESCAPE}[1m" in on_a_terminal(broker, "topic", "list")
    assert ESCAPE not in on_a_terminal(broker, "topic", "list", NO_COLOR="1")
    for words in (("topic", "list"), ("topic", "describe", "t"), ("cluster", "status"), ("doctor",), ("--help",)):
        assert ESCAPE not in in_a_pipe(broker, *words), words


def listed(servers: str, topic: str) -> None:
    """Until the broker that the commands below ask knows it: it hears of it from the controller."""
    deadline = time.monotonic() + 30
    with Cluster(client_settings(servers, {})) as cluster:
        while topic not in {found.name for found in list_topics(cluster)}:
            assert time.monotonic() < deadline, topic
            time.sleep(0.05)


@pytest.mark.timeout(600)
def test_bars_of_drain_and_balance(tmp_path: Path) -> None:
    port = free_ports(9)[0]
    cluster = up(tmp_path, port, 3)
    try:
        assert "3 nodes" in first_line(cluster)
        servers = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 12, 1)])["t"].result(30)
        listed(servers, "t")
        for words in (("cluster", "drain", "2"), ("cluster", "balance")):
            counts = re.findall(r"(\d+)/(\d+)", on_a_terminal(servers, *words, "--at-once", "1"))
            assert len(set(counts)) > 1, words
            assert counts[0][0] == "0"
        piped = in_a_pipe(servers, "cluster", "drain", "3", "--at-once", "2")
        assert ESCAPE not in piped
        assert "\r" not in piped
        cluster.send_signal(signal.SIGINT)
        assert cluster.wait(60) == 0
    finally:
        cluster.kill()
        cluster.wait(10)
