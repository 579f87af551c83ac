"""The process table by /proc and by `ps`: both say the same."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.kafka.server_stop import servers
from ottla.system import processes

SLACK_S = 5.0


@pytest.fixture(params=["proc", "ps"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "proc" and not Path("/proc/self").is_dir():
        pytest.skip("this system has no /proc")
    if request.param == "ps":
        if shutil.which("ps") is None or shutil.which("lsof") is None:
            pytest.skip("ps or lsof is not installed")
        monkeypatch.setattr(processes, "_PROC", "/nowhere")
    return str(request.param)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-c", "import sys; sys.stdin.read()", "server", "start", "node.properties"]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, cwd=tmp_path)
    yield started
    started.kill()
    started.communicate()


def test_a_process_and_its_folder(way: str, child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    started = processes.started_at(child.pid)
    assert started is not None
    assert abs(started - time.time()) < 60 + SLACK_S, "it has just begun"
    assert not processes.is_zombie(child.pid)
    listed = {process.pid: process.words for process in processes.own_processes()}
    assert listed[child.pid][-3:] == ["server", "start", "node.properties"]
    assert processes.working_directory(child.pid) == str(tmp_path.resolve())
    assert (child.pid, str(tmp_path.resolve() / "node.properties")) in servers()


def test_a_process_that_has_ended(way: str, child: subprocess.Popen[bytes]) -> None:
    child.kill()
    while not processes.is_zombie(child.pid):  # the test's own timeout ends this
        time.sleep(0.01)
    child.wait()
    assert not processes.is_zombie(child.pid)
    assert processes.started_at(child.pid) is None
    assert child.pid not in {process.pid for process in processes.own_processes()}


def test_this_process(way: str) -> None:
    memory, before = asyncio.run(processes.resident_bytes()), processes.open_descriptors()
    assert memory is not None
    assert 5_000_000 < memory < 10_000_000_000
    ends = [end for _ in range(10) for end in os.pipe()]
    after = processes.open_descriptors()
    for end in ends:
        os.close(end)
    assert before is not None
    assert after is not None
    assert after - before == 20


@pytest.mark.parametrize(
    ("elapsed", "seconds"), [("00:07", 7), ("01:02", 62), ("03:00:01", 10_801), ("2-00:00:05", 172_805), ("", None)]
)
def test_elapsed_times_of_ps(monkeypatch: pytest.MonkeyPatch, elapsed: str, seconds: int | None) -> None:
    monkeypatch.setattr(processes, "_PROC", "/nowhere")
    monkeypatch.setattr(processes, "_output", lambda *_words, **_named: f" {elapsed}\n")
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert processes.started_at(1) == (None if seconds is None else 1_000_000.0 - seconds)


def test_a_machine_without_these_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PROC", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    assert processes.started_at(os.getpid()) is None
    assert not processes.is_zombie(os.getpid())
    assert list(processes.own_processes()) == []
    assert processes.working_directory(os.getpid()) is None
    assert asyncio.run(processes.resident_bytes()) is None


def test_the_loop_does_not_wait_for_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape of the metrics would hold every client up for as long as `ps` takes."""
    callers: list[threading.Thread] = []

    def output(*_command: str, timeout_s: float) -> str:
        del timeout_s
        callers.append(threading.current_thread())
        return "7\n"

    monkeypatch.setattr(processes, "_PROC", "/nowhere")
    monkeypatch.setattr(processes, "_output", output)
    assert asyncio.run(processes.resident_bytes()) == 7 * 1024
    assert threading.current_thread() not in callers
