"""Rounds of kill -9 over `copy_pipeline.py`: a driver in a process group of its own, its victims, and what must hold.

`python -m tests.pipelines.rounds --rounds 50 --seed 50` runs them by hand and prints who was killed. Spark speculates only
where executors are processes of their own: `--master 'local-cluster[2,1,900]' --conf spark.speculation=true`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset

from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.delta import read_delta
from ottla.connect.sinks.parquet import open_store
from ottla.connect.sources.sql import read_table
from ottla.tables.query import topic_table
from tests.interop.ottla_server import ROOT, OttlaServer
from tests.pipelines.conftest import PROPERTIES, Topics
from tests.support.apache_kafka import ApacheKafka
from tests.support.postgresql import postgresql
from tests.support.s3 import KEYS, s3_server

FILE = Path(__file__).with_name("copy_pipeline.py")
WORDS = ("log", "table", "stream", "state")
_SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Outputs:
    """Where the pipeline writes what is no topic."""

    folder: Path
    database: str
    parquet: str
    suffix: str = ""
    """Of the output topics."""

    @classmethod
    def local(cls, folder: Path, suffix: str = "") -> Outputs:
        folder.mkdir(parents=True)
        return cls(folder, f"sqlite:///{folder}/rows.db", str(folder / "parquet"), suffix)

    def environment(self) -> dict[str, str]:
        names = {"OUT": str(self.folder), "DATABASE": self.database, "PARQUET": self.parquet, "SUFFIX": self.suffix}
        return {f"OTTLA_TEST_{name}": value for name, value in names.items()}


@contextmanager
def far_outputs(folder: Path) -> Iterator[Outputs]:
    """A real PostgreSQL and a real S3 server; Unavailable says what is missing."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        store = stack.enter_context(s3_server(folder / "s3"))
        database = stack.enter_context(postgresql())
        before = {name: os.environ.get(name) for name in KEYS}
        os.environ.update(KEYS)
        try:
            yield Outputs(folder, database, store.uri(f"{store.bucket('rows')}/copy"))
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


class Driver:
    """`ottla pipeline run` in a process group of its own."""

    def __init__(self, servers: str, folder: Path, outputs: Outputs, master: str = "local[2]", *conf: str) -> None:
        settings = ("spark.sql.shuffle.partitions=2", "spark.driver.memory=768m", *conf)
        self._command = [
            sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(FILE), "-b", servers, "--master", master,
            "--checkpoints", str(folder / "checkpoints"), "--state", str(folder / "state"), "--quiet",
            "--status", str(folder / "status.json"), "--max-offsets-per-trigger", "150",
            "--conf", f"spark.driver.extraJavaOptions={' '.join(_SMALL)}",
            *[word for one in settings for word in ("--conf", one)],
        ]  # fmt: skip
        self._folder = folder
        self._environment = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1", **outputs.environment(),
        }  # fmt: skip
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
        """To the end of what is there."""
        self.start("--once", "--max-offsets-per-trigger", "5000")
        try:
            assert self.process.wait(timeout) == 0, (self._folder / "driver.log").read_text()[-3000:]
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def python_workers(self) -> list[int]:
        """Spark's Python processes under this driver: the daemon and those that it forked."""
        parents, names = {}, {}
        for entry in (one.name for one in Path("/proc").iterdir()):
            if entry.isdigit():
                with suppress(OSError, IndexError):
                    parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                    names[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes()
        return [pid for pid in parents if b"-m\0pyspark" in names.get(pid, b"") and self._is_below(pid, parents)]

    def _is_below(self, pid: int, parents: dict[int, int]) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == self.process.pid:
                return True
        return False


def send(server: ApacheKafka, numbers: range, draw: random.Random) -> None:
    sender = Sender({"bootstrap.servers": server.bootstrap_servers})
    sender.send(Outgoing("in", None, json.dumps({"n": n, "word": draw.choice(WORDS)}).encode()) for n in numbers)
    sender.flush()


def rounds(
    server: ApacheKafka,
    folder: Path,
    outputs: Outputs,
    count: int,
    seed: int,
    rows: int,
    master: str = "local[2]",
    *conf: str,
) -> Counter[str]:
    draw = random.Random(seed)
    topics = Topics(server)
    for name in ("in", "out", "counts"):
        topics.make(name, 2)
    victims: Counter[str] = Counter()
    driver = Driver(server.bootstrap_servers, folder, outputs, master, *conf)
    driver.start()
    try:
        for number in range(count):
            send(server, range(number * rows, (number + 1) * rows), draw)
            before, deadline = _batches_done(folder), time.monotonic() + 150
            while _batches_done(folder) < before + draw.randrange(1, 4) and time.monotonic() < deadline:
                assert driver.process.poll() is None, (folder / "driver.log").read_text()[-3000:]
                time.sleep(0.1)
            time.sleep(draw.random())
            victim = draw.choice(("driver", "worker", "broker")) if number else "driver"
            victims[_kill_one(victim, server, driver, draw)] += 1
            print(f"round {number + 1}: {dict(victims)}, {_batches_done(folder)} batches", flush=True)
        driver.kill()
        driver.finish(600)
    finally:
        driver.kill()
    check(server, outputs, count * rows)
    return victims


def _kill_one(victim: str, server: ApacheKafka, driver: Driver, draw: random.Random) -> str:
    workers = driver.python_workers() if victim == "worker" else []
    if victim == "broker":
        server.kill()
        time.sleep(draw.random())
        server.start()
        return victim
    if workers:
        with suppress(ProcessLookupError):
            os.kill(draw.choice(workers), signal.SIGKILL)
        return victim
    driver.kill()
    driver.start()
    return "driver"


def _batches_done(folder: Path) -> int:
    return sum(len(list(one.glob("[0-9]*"))) for one in (folder / "checkpoints").glob("copy/*/commits"))


def check(server: ApacheKafka, outputs: Outputs, sent: int) -> None:
    """Every input is once in every output, and the counts by word are those of the inputs."""
    client = {"bootstrap.servers": server.bootstrap_servers}
    expected = Counter(range(sent))
    inputs = {
        row["n"]: row["word"] for row in (json.loads(one["value"]) for one in topic_table(client, "in").to_pylist())
    }
    written = [json.loads(row["value"]) for row in topic_table(client, f"out{outputs.suffix}").to_pylist()]
    assert Counter(row["n"] for row in written) == expected
    assert all(row["word"] == inputs[row["n"]].upper() for row in written)
    assert Counter(read_delta(str(outputs.folder / "delta"))[0].column("n").to_pylist()) == expected
    assert Counter(read_table(outputs.database, "rows").column("n").to_pylist()) == expected
    store, path = open_store(outputs.parquet)
    files = pyarrow.dataset.dataset(path, filesystem=store, partitioning="hive").to_table()
    assert Counter(files.column("n").to_pylist()) == expected
    assert set(files.column("word").to_pylist()) <= set(WORDS)
    newest = {
        row["key"]: json.loads(row["value"]) for row in topic_table(client, f"counts{outputs.suffix}").to_pylist()
    }
    by_word = Counter(word.upper() for word in inputs.values())
    assert {row["word"]: row["c"] for row in newest.values()} == dict(by_word)


def run_rounds(
    folder: Path, count: int, seed: int, rows: int = 300, master: str = "local[2]", *conf: str
) -> Counter[str]:
    server = OttlaServer(folder / "server", properties=PROPERTIES)
    server.start()
    try:
        with far_outputs(folder / "out") as outputs:
            return rounds(server, folder, outputs, count, seed, rows, master, *conf)
    finally:
        server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--conf", action="append", default=[], help="NAME=VALUE of Spark, such as spark.speculation=true"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-rounds-") as place:
        begun = time.monotonic()
        killed = run_rounds(Path(place), given.rounds, given.seed, 300, given.master, *given.conf)
        print(f"killed {dict(killed)} in {time.monotonic() - begun:.0f} s: every input once in every output")
