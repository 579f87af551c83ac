"""`ottla console` and `ottla top` as processes."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets
from ottla.client.settings import client_settings
from ottla.client.topics import create_topic
from ottla.testing import Broker
from tests.support.ports import free_port

OTTLA = (sys.executable, "-m", "ottla.cli.main")


def test_top_shows_the_cluster_and_ends(broker: Broker) -> None:
    with Cluster(client_settings(broker.bootstrap_servers, {})) as cluster:
        create_topic(cluster, "marked-up", partitions=1)
        commit_offsets(cluster, "[/queue] [red]team", {("marked-up", 0): 0})
    done = subprocess.run(
        [*OTTLA, "top", "-b", broker.bootstrap_servers, "--count", "2", "--every", "0.2"],
        capture_output=True, text=True, timeout=50, check=False, env={**os.environ, "COLUMNS": "140"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert broker.bootstrap_servers in done.stdout
    assert "Groups" in done.stdout
    assert "[/queue] [red]team" in done.stdout, "a name is no markup"


def test_top_in_a_terminal_is_live_and_leaves_it_as_it_was(broker: Broker) -> None:
    """A real pseudo-terminal: the whole screen, new figures while records come in, Ctrl-C, and the screen is back."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("seen-by-top", b"first")
    assert producer.flush(30) == 0
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "COLUMNS": "140", "LINES": "60", "TERM": "xterm-256color"}
        os.execve(OTTLA[0], [*OTTLA, "top", "-b", broker.bootstrap_servers, "--every", "0.3"], environment)
    shown = b""

    def until(pattern: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while not re.search(pattern, shown):
            assert time.monotonic() < deadline, shown[-3000:]
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)

    try:
        until(rb"\x1b\[\?1049h")  # the other screen
        until(rb"seen-by-top\D+1\D+1\D")
        for n in range(41):
            producer.produce("seen-by-top", b"%d" % n)
        assert producer.flush(30) == 0
        shown = b""
        until(rb"seen-by-top\D+1\D+42\D")
        os.write(terminal, b"\x03")
        until(rb"\x1b\[\?1049l")
        _, status = os.waitpid(pid, 0)
        pid = 0
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)


def test_top_says_that_nobody_answers() -> None:
    waiting = "from ottla.cli import main; from ottla.cli.options import reachability as reaching; reaching.wait_for_listener.__defaults__ = (0.3,); main.main()"
    config = ("--bootstrap-servers", "127.0.0.1:1")
    done = subprocess.run(
        [sys.executable, "-c", waiting, "top", *config, "--count", "1"],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "nothing listens on 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_console_serves_and_stops(broker: Broker) -> None:
    port = free_port()
    command = [*OTTLA, "console", "--bootstrap-servers", broker.bootstrap_servers, "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line == f"the console is up at http://127.0.0.1:{port}/\n"
            with urlopen(f"http://127.0.0.1:{port}/topics", timeout=20) as answer:
                assert b"<h1>Topics</h1>" in answer.read()
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                assert b"ottla_console_look_seconds" in answer.read()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(50) in (0, -signal.SIGINT)
        assert "Traceback" not in process.stdout.read()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "nowhere"], "is not HOST:PORT"),
        (["--bootstrap-servers", "no-port"], "Invalid url"),
        (["--registry", "ftp://x"], "must begin with http"),
    ],
)
def test_bad_arguments_are_said_in_one_line(arguments: list[str], says: str) -> None:
    done = subprocess.run([*OTTLA, "console", *arguments], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_of_another_is_said_in_one_line() -> None:
    """As `ottla up` starts it, with an input that stays open: the reader of it aborted the interpreter at its end."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*OTTLA, "console", "--listen", address, "--until-stdin-closes"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = process.stderr.read()
            assert process.wait(50) == 1
    assert said == f"ottla console: cannot listen on {address}: Address already in use\n"
