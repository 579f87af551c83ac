"""`ottla consume -g` in a process of its own on a real node: what was printed is committed, and nothing else."""

from __future__ import annotations

import array
import fcntl
import itertools
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ottla.client.cluster import Cluster
from ottla.client.groups import committed_offsets
from ottla.client.settings import client_settings
from ottla.client.topics import create_topic
from ottla.testing import Broker

RECORDS = 600
LONG_LINE = "%o " + "x" * 400 + "\\n"
OTTLA = [sys.executable, "-m", "ottla"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    with _cluster(broker) as cluster:
        create_topic(cluster, "records", partitions=1, replication_factor=1)
    _write(broker, "records", RECORDS, first=0)
    return "records"


def _cluster(broker: Broker) -> Cluster:
    return Cluster(client_settings(broker.bootstrap_servers))


def _write(broker: Broker, topic: str, count: int, *, first: int) -> None:
    lines = "".join(f"{number}\n" for number in range(first, first + count))
    words = [*OTTLA, "produce", topic, "-b", broker.bootstrap_servers, "-X", "linger.ms=50"]
    subprocess.run(words, input=lines, text=True, check=True, timeout=60)


def _consume(broker: Broker, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*OTTLA, "consume", *words, "-b", broker.bootstrap_servers, "-f", "%o\\n"]
    return subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)


def _committed(broker: Broker, group: str, topic: str = "records") -> dict[int, int]:
    with _cluster(broker) as cluster:
        found = committed_offsets(cluster, group)
    return {partition: offset for (name, partition), offset in found.items() if name == topic}


def _offsets(text: str) -> list[int]:
    return [int(line) for line in text.splitlines()]


def test_a_count_commits_that_many_records(broker: Broker, topic: str) -> None:
    for start in (0, 2, 4):
        done = _consume(broker, topic, "-g", "counted", "-n", "2")
        assert (done.returncode, _offsets(done.stdout)) == (0, [start, start + 1]), done.stderr
        assert _committed(broker, "counted") == {0: start + 2}


def test_a_count_with_a_filter_commits_what_the_filter_has_seen(broker: Broker, topic: str) -> None:
    done = _consume(broker, topic, "-g", "filtered", "-n", "2", "--filter", "offset > 9")
    assert (done.returncode, _offsets(done.stdout)) == (0, [10, 11]), done.stderr
    assert _committed(broker, "filtered") == {0: 12}


def test_exit_ends_at_the_end_of_all_partitions(broker: Broker) -> None:
    with _cluster(broker) as cluster:
        create_topic(cluster, "three", partitions=3, replication_factor=1)
    for number in (0, 2):
        subprocess.run(
            [*OTTLA, "produce", "three", f"in {number}", "-p", str(number), "-b", broker.bootstrap_servers],
            check=True, timeout=60,
        )  # fmt: skip
    done = _consume(broker, "three", "-g", "ending", "-e")
    assert (done.returncode, _offsets(done.stdout)) == (0, [0, 0]), done.stderr
    assert _committed(broker, "ending", "three") == {0: 1, 2: 1}
    again = _consume(broker, "three", "-g", "ending", "-e")
    assert (again.returncode, again.stdout) == (0, ""), again.stderr


@pytest.mark.parametrize(("where", "first"), [("5", 5), ("beginning", 0), ("stored", 0), ("-1h", 0), ("598", 598)])
def test_a_new_group_starts_where_from_says(broker: Broker, topic: str, where: str, first: int) -> None:
    done = _consume(broker, topic, "-g", f"from{where}", "-e", "--from", where)
    assert (done.returncode, _offsets(done.stdout)) == (0, list(range(first, RECORDS))), done.stderr
    assert _committed(broker, f"from{where}") == {0: RECORDS}


def test_from_the_end_reads_nothing_that_was_there(broker: Broker, topic: str) -> None:
    done = _consume(broker, topic, "-g", "from-end", "-e", "--from", "end")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert _committed(broker, "from-end") == {}


@pytest.mark.parametrize("where", ["5", "-1h", "beginning", "end"])
def test_from_is_refused_where_the_group_has_offsets(broker: Broker, topic: str, where: str) -> None:
    group = f"refused{where}"
    assert _consume(broker, topic, "-g", group, "-n", "3").returncode == 0
    done = _consume(broker, topic, "-g", group, "-e", "--from", where)
    assert done.returncode == 1
    assert "--from" in done.stderr
    assert "ottla group reset" in done.stderr
    assert _committed(broker, group) == {0: 3}


def test_options_that_cannot_work_with_a_group_are_refused_by_name(broker: Broker, topic: str) -> None:
    done = _consume(broker, topic, "-g", "any", "-p", "0", "-e")
    assert done.returncode == 2
    assert "-p and -g cannot be used together" in done.stderr
    done = _consume(broker, topic, "-e", "--from", "stored")
    assert done.returncode == 1
    assert "--from stored needs a group (-g)" in done.stderr


def test_a_closed_standard_output_is_refused_and_nothing_is_committed(broker: Broker, topic: str) -> None:
    words = [*OTTLA, "consume", topic, "-g", "closed", "-e", "-b", broker.bootstrap_servers]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh"]
    done = subprocess.run([*closed, *words], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "standard output is closed" in done.stderr
    assert _committed(broker, "closed") == {}


def _blocked(broker: Broker, topic: str, group: str) -> tuple[subprocess.Popen[str], int]:
    """A consumer that cannot go on because nobody reads its pipe, and how many records are in the pipe."""
    command = [*OTTLA, "consume", topic, "-g", group, "-b", broker.bootstrap_servers, "-f", LONG_LINE]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    records, room = _fitting(_line(number) for number in range(RECORDS))
    deadline = time.monotonic() + 30
    while (filled := _bytes_in(process)) < room:
        assert time.monotonic() < deadline, filled
        assert process.poll() is None, process.stderr
        time.sleep(0.02)
    return process, records


def _fitting(lines: Iterable[str]) -> tuple[int, int]:
    """How many of the lines, and how many bytes, a pipe of this system takes before its writer has to wait."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    count = room = 0
    try:
        for line in lines:
            room += os.write(writing, line.encode())
            count += 1
    except BlockingIOError:
        return count, room
    finally:
        os.close(reading)
        os.close(writing)
    raise AssertionError("the pipe takes all lines: nobody would have to wait")


def _bytes_in(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    count = array.array("i", [0])
    fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, count)
    return count[0]


def _line(number: int) -> str:
    return LONG_LINE.replace("%o", str(number)).replace("\\n", "\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_commits_what_was_printed(broker: Broker, topic: str, number: signal.Signals) -> None:
    """Hundreds of records are fetched and not printed when the signal comes."""
    group = f"signal-{number.name}"
    process, _ = _blocked(broker, topic, group)
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    printed = [int(line.split()[0]) for line in out.splitlines()]
    assert process.returncode == 0, errors
    assert printed == list(range(len(printed)))
    assert len(printed) < RECORDS
    assert f"{len(printed)} records" in errors
    assert _committed(broker, group) == {0: len(printed)}


def test_a_signal_while_nothing_comes(broker: Broker, topic: str) -> None:
    command = [*OTTLA, "consume", topic, "-g", "idle", "-b", broker.bootstrap_servers, "-f", "%o\\n"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert [int(process.stdout.readline()) for _ in range(RECORDS)] == list(range(RECORDS))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert _committed(broker, "idle") == {0: RECORDS}


def test_a_closed_pipe_commits_what_went_into_it(broker: Broker, topic: str) -> None:
    process, records = _blocked(broker, topic, "piped")
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=30)
    assert _committed(broker, "piped") == {0: records}


def test_a_killed_process_has_committed_nothing_that_was_not_printed(broker: Broker, topic: str) -> None:
    process, records = _blocked(broker, topic, "killed")
    process.kill()
    process.wait(timeout=30)
    assert _committed(broker, "killed").get(0, 0) <= records


def test_the_console_consumer_commits_what_it_printed(broker: Broker, topic: str, shims: Path) -> None:
    """Its pipe is closed while hundreds of records are fetched and not printed."""
    command = [
        str(shims / "kafka-console-consumer.sh"), "--bootstrap-server", broker.bootstrap_servers, "--topic", topic,
        "--group", "console", "--from-beginning", "--formatter-property", "print.offset=true",
        "--formatter-property", "key.separator=" + "x" * 200, "--formatter-property", "print.headers=true",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
    assert process.stdout is not None
    seen = b""
    while not seen.endswith(b"\n"):
        seen += process.stdout.read(1)
    line, (_, room) = len(seen), _fitting(itertools.repeat(seen.decode(), RECORDS))
    deadline = time.monotonic() + 30
    while _bytes_in(process) < room - 3 * line:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.stdout.close()
    process.wait(timeout=30)
    assert 0 < _committed(broker, "console")[0] <= 1 + room // line
