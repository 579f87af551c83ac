"""Ctrl-C and closed pipes: each tool that runs until it is told to stop ends at once, with the code and words of Kafka's.

A tool is told when its first line is on the screen, so nothing is guessed about how long a start takes.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.support.ports import free_port

INTERRUPTED = 130

LONG = {
    "console-consumer": "--topic t --from-beginning",
    "console-share-consumer": "--topic t",
    "consumer-perf-test": "--topic t --num-records 1000000 --timeout 60000",
    "producer-perf-test": "--topic t --num-records 1000000 --throughput 50 --record-size 10 --reporting-interval 200",
    "e2e-latency": "--topic e --num-records 1000000 --producer-acks 1 --record-size 10",
    "verifiable-producer": "--topic v --throughput 20",
    "verifiable-consumer": "--topic t --group-id g",
    "replica-verification": "--topics-include t --report-interval-ms 100",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        subprocess.run(
            ["/bin/sh", "-c", f"printf 'a\\nb\\nc\\n' | {_ottla()} produce t -b {running.bootstrap_servers}"],
            check=True, timeout=60, capture_output=True,
        )  # fmt: skip
        subprocess.run(
            [*_ottla().split(), "config", "set", "group", "console-share-consumer", "share.auto.offset.reset=earliest",
             "-b", running.bootstrap_servers],
            check=True, timeout=60, capture_output=True,
        )  # fmt: skip
        yield running


def _ottla() -> str:
    import sys

    return f"{sys.executable} -m ottla.cli.main"


def write_one_more(broker: Broker) -> None:
    more = ["/bin/sh", "-c", f"echo d | {_ottla()} produce t -b {broker.bootstrap_servers}"]
    subprocess.run(more, check=True, timeout=60, capture_output=True)


def started(shims: Path, name: str, words: str, broker: Broker) -> subprocess.Popen[str]:
    if name == "console-share-consumer":
        write_one_more(broker)  # its group may have taken all that was there, in another test
    flag = "--broker-list" if name == "replica-verification" else "--bootstrap-server"
    command = [str(shims / f"kafka-{name}.sh"), flag, broker.bootstrap_servers, *words.split()]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(LONG))
def test_ctrl_c_is_clean(shims: Path, broker: Broker, name: str) -> None:
    process = started(shims, name, LONG[name], broker)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), process.communicate(timeout=20)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == INTERRUPTED, err
    assert "Traceback" not in err
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", sorted(set(LONG) - {"consumer-perf-test"}))
def test_a_closed_pipe_ends_it(shims: Path, broker: Broker, name: str) -> None:
    """As `| head -1` does: the reader goes away after one line, and the next line that is written ends the tool."""
    process = started(shims, name, LONG[name], broker)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        if name in {"console-consumer", "console-share-consumer", "verifiable-consumer"}:
            write_one_more(broker)
        process.wait(30)
        assert process.stderr is not None
        err = process.stderr.read()
    finally:
        process.kill()
        process.wait(10)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_ctrl_c_at_the_console_producer(shims: Path, broker: Broker) -> None:
    """What was typed before is sent."""
    command = [str(shims / "kafka-console-producer.sh"), "--bootstrap-server", broker.bootstrap_servers, "--topic", "p"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        process.stdin.write("typed\n")
        process.stdin.flush()
        consumer = started(shims, "console-consumer", "--topic p --from-beginning --max-messages 1", broker)
        out, _ = consumer.communicate(timeout=40)
        assert out == "typed\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == INTERRUPTED
    assert "Traceback" not in err


def terminal_of(command: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """The command with a terminal as its standard input and output, in a session that Ctrl-C reaches."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, start_new_session=True)
    os.close(theirs)
    return process, ours


def read_until(terminal: int, text: bytes, seconds: float = 40) -> bytes:
    seen = b""
    deadline = time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, seen
        seen += os.read(terminal, 4096)
    return seen


@pytest.mark.parametrize("how", ["ctrl-c", "ctrl-d", "exit"])
def test_the_end_of_an_interactive_metadata_shell(shims: Path, broker: Broker, how: str) -> None:
    log = next(iter(broker.node.config.data_dirs)) + "/__cluster_metadata-0/00000000000000000000.log"
    process, terminal = terminal_of([str(shims / "kafka-metadata-shell.sh"), "--snapshot", log])
    try:
        read_until(terminal, b">> ")
        os.write(terminal, b"ls /\n")
        assert b"image" in read_until(terminal, b"\n>> ")
        if how == "ctrl-c":
            process.send_signal(signal.SIGINT)
        else:
            os.write(terminal, b"\x04" if how == "ctrl-d" else b"exit\n")
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
        os.close(terminal)
    assert err == b""
    assert process.returncode == (INTERRUPTED if how == "ctrl-c" else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_told_to_stop(shims: Path, tmp_path: Path, number: signal.Signals) -> None:
    """It closes its logs and ends as a JVM does, with 128 and the signal."""
    properties = tmp_path / "server.properties"
    port, controller = free_port(), free_port()
    properties.write_text(
        f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/data\n"
    )
    storage = [str(shims / "kafka-storage.sh"), "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(properties)]
    subprocess.run(storage, check=True, timeout=60, capture_output=True)
    process = subprocess.Popen(
        [str(shims / "kafka-server-start.sh"), str(properties)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "node.started" in line:
                break
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in "".join(said) + rest
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
