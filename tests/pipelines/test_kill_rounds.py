"""kill -9 of the driver, of Python workers and of the broker in the middle of it: every input once in every output.

`OTTLA_KILL_ROUNDS` sets how many rounds the soak test takes (50 when not given).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset
import pytest

from ottla.connect.exactly_once import Outgoing, Sender
from ottla.connect.sinks.delta import read_delta
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT, OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics

FILE = Path(__file__).with_name("copy_pipeline.py")
WORDS = ("log", "table", "stream", "state")


class Driver:
    """`ottla pipeline run` in a process group of its own."""

    def __init__(self, servers: str, folder: Path, master: str = "local[2]") -> None:
        self._command = [
            sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(FILE), "-b", servers, "--master", master,
            "--checkpoints", str(folder / "checkpoints"), "--state", str(folder / "state"), "--quiet",
            "--status", str(folder / "status.json"), "--max-offsets-per-trigger", "150",
            "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.memory=768m",
            "--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        ]  # fmt: skip
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OTTLA_TEST_OUT": str(folder / "out")}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        with (self._folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, *words],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, timeout: float) -> None:
        self.start("--once")
        assert self.process.wait(timeout) == 0, (self._folder / "driver.log").read_text()[-3000:]

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def python_workers(self) -> list[int]:
        """Spark's Python processes under this driver."""
        parents, names = {}, {}
        for entry in (one.name for one in Path("/proc").iterdir()):
            if entry.isdigit():
                with suppress(OSError, IndexError):
                    parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                    names[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes()
        found = []
        for pid in parents:
            above = pid
            while above in parents and above != self.process.pid:
                above = parents[above]
            if (
                above == self.process.pid
                and b"pyspark" in names.get(pid, b"")
                and pid != self.process.pid
                and b"java" not in names[pid]
            ):
                found.append(pid)
        return found


def batches_done(folder: Path) -> int:
    return sum(len(list(one.glob("[0-9]*"))) for one in (folder / "checkpoints").glob("copy/*/commits"))


def rounds(server, folder: Path, count: int, seed: int, rows: int) -> Counter[str]:
    draw = random.Random(seed)
    topics = Topics(server)
    for name in ("in", "out", "counts"):
        topics.make(name, 2)
    (folder / "out").mkdir()
    sent = 0
    victims: Counter[str] = Counter()
    driver = Driver(server.bootstrap_servers, folder)
    driver.start()
    try:
        for number in range(count):
            sender = Sender({"bootstrap.servers": server.bootstrap_servers})
            more = range(sent, sent + rows)
            sender.send(Outgoing("in", None, json.dumps({"n": n, "word": draw.choice(WORDS)}).encode()) for n in more)
            sender.flush()
            sent += rows
            before, deadline = batches_done(folder), time.monotonic() + 150
            while batches_done(folder) < before + draw.randrange(1, 4) and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(draw.random())
            victim = draw.choice(("driver", "driver", "worker", "broker")) if number else "driver"
            workers = driver.python_workers() if victim == "worker" else []
            if victim == "broker":
                server.kill()
                time.sleep(draw.random())
                server.start()
            elif victim == "worker" and workers:
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
            else:
                driver.kill()
                driver.start()
            victims[victim] += 1
        driver.kill()
        driver.finish(400)
    finally:
        driver.kill()
    check(server, folder, sent)
    return victims


def check(server, folder: Path, sent: int) -> None:
    client = {"bootstrap.servers": server.bootstrap_servers}
    expected = Counter(range(sent))
    inputs = {
        row["n"]: row["word"] for row in (json.loads(one["value"]) for one in topic_table(client, "in").to_pylist())
    }
    written = [json.loads(row["value"]) for row in topic_table(client, "out").to_pylist()]
    assert Counter(row["n"] for row in written) == expected
    assert all(row["word"] == inputs[row["n"]].upper() for row in written)
    assert Counter(read_delta(str(folder / "out" / "delta"))[0].column("n").to_pylist()) == expected
    database = sqlite3.connect(folder / "out" / "rows.db")
    assert Counter(row[0] for row in database.execute("select n from rows")) == expected
    database.close()
    files = pyarrow.dataset.dataset(str(folder / "out" / "parquet")).to_table()
    assert Counter(files.column("n").to_pylist()) == expected
    newest = {row["key"]: json.loads(row["value"]) for row in topic_table(client, "counts").to_pylist()}
    by_word = Counter(word.upper() for word in inputs.values())
    assert {row["word"]: row["c"] for row in newest.values()} == dict(by_word)


@pytest.mark.timeout(900)
def test_the_driver_is_killed_in_the_middle(tmp_path):
    server = OttlaServer(tmp_path / "server", properties=PROPERTIES)
    server.start()
    try:
        rounds(server, tmp_path, 1, seed=4711, rows=600)
    finally:
        server.stop()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_kills(tmp_path):
    server = OttlaServer(tmp_path / "server", properties=PROPERTIES)
    server.start()
    try:
        victims = rounds(
            server, tmp_path, int(os.environ.get("OTTLA_KILL_ROUNDS", "50")), seed=int(time.time()), rows=300
        )
    finally:
        server.stop()
    print(f"killed: {dict(victims)}")
