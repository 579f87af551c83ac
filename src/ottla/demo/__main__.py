"""Start a log, feed it, run the pipelines once over everything, check and print what came out; exit 0 when it is right.

Only public things are used: the wire, `ottla.pipelines` and DuckDB. The same lines work against Apache Kafka.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ottla.demo import show
from ottla.demo.feed import Expected, access_log, devices, thermostats
from ottla.env.logging import configure
from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = 12_000
READINGS = 4_000
SEED = 20180301
NEEDED = {"confluent_kafka": "confluent-kafka", "pyspark": "'ottla[spark]'", "deltalake": "'ottla[spark]'"}


class DemoFailed(UserError):
    """A step of the demo did not end as it should."""


class Stopwatch:
    def __init__(self, console: Console) -> None:
        self._console = console
        self.steps: list[tuple[str, float, str]] = []

    @contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        note: list[str] = []
        began = time.perf_counter()
        with self._console.status(f"{what} ..."):
            yield note
        self.steps.append((what, time.perf_counter() - began, " ".join(note)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="A log, data, pipelines, results.")
    parser.add_argument("--keep", metavar="DIR", help="leave the Delta tables and the SQLite file there")
    parser.add_argument("--bootstrap-servers", help="use this cluster instead of a log of the demo's own")
    arguments = parser.parse_args()
    for module, package in NEEDED.items():
        if importlib.util.find_spec(module) is None:
            complaint(f"the demo needs {module}: pip install {package}")
            return 1
    configure(level="warning")
    console = Console()
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-demo-") as scratch:
            folder = Path(arguments.keep or scratch)
            folder.mkdir(parents=True, exist_ok=True)
            run(console, folder, arguments.bootstrap_servers, kept=bool(arguments.keep))
    except UserError as failure:
        complaint(f"the demo failed: {failure}")
        return 1
    return 0


def complaint(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"ottla: {text}", markup=False)


@contextmanager
def a_log(servers: str | None) -> Iterator[str]:
    if servers is not None:
        yield servers
        return
    from ottla.testing import Broker

    with Broker() as broker:
        yield broker.bootstrap_servers


def run(console: Console, folder: Path, servers: str | None, *, kept: bool) -> None:
    from ottla.pipelines.session import spark

    watch = Stopwatch(console)
    expected = Expected()
    began = time.perf_counter()
    with a_log(servers) as bootstrap:
        watch.steps.append(("start a log", time.perf_counter() - began, bootstrap))
        with watch.step("feed it") as note:
            feed(bootstrap, folder, expected)
            note.append(f"{expected.lines:,} lines of an access log, {expected.readings + expected.broken:,} readings")
        with watch.step("start Spark") as note:
            session = spark("local[2]", low_footprint=True, log_file=str(folder / "spark.log"))
            note.append(f"{session.version}, in this process")
        try:
            run_pipelines(session, bootstrap, folder, watch)
        finally:
            session.stop()
        results = show.collect(bootstrap, folder)
        check(results, expected)
    for table in show.tables(results):
        console.print(table)
    console.print(show.steps_table(watch.steps, time.perf_counter() - began))
    where = f"Delta tables and results.db are in {folder}" if kept else "--keep DIR keeps the Delta tables and SQLite"
    console.print(f"Counts were checked against a computation without Spark. {where}.", highlight=False)


def run_pipelines(session: SparkSession, bootstrap: str, folder: Path, watch: Stopwatch) -> None:
    from ottla.demo.steps import pipelines
    from ottla.pipelines.build import RunSettings
    from ottla.pipelines.run import PipelineRun

    settings = RunSettings(bootstrap_servers=bootstrap, checkpoints=str(folder / "checkpoints"))
    for pipeline in pipelines(folder):
        with watch.step(f"pipeline {pipeline.name}") as note:
            done = PipelineRun(session, pipeline, settings)
            done.once()
            note.append(
                f"{len(pipeline.steps)} steps, {sum(running.rows for running in done.running):,} rows in, exactly once"
            )


def feed(bootstrap: str, folder: Path, expected: Expected) -> None:
    import sqlite3

    from ottla.connect.sender import Outgoing, Sender

    show.create_topics(bootstrap, {"access-log": 3, "hits": 3, "thermostats": 2})
    sender = Sender({"bootstrap.servers": bootstrap})
    for name, records in (
        ("access-log", access_log(LINES, SEED, expected)),
        ("thermostats", thermostats(READINGS, SEED, expected)),
    ):
        sender.send(Outgoing(name, key.encode(), value.encode(), None, -1, at) for key, value, at in records)
    sender.flush()
    with sqlite3.connect(folder / "results.db") as database:
        database.execute("create table if not exists devices (device text primary key, room text, floor integer)")
        database.executemany("insert or replace into devices values (?, ?, ?)", devices())
    database.close()


def check(results: show.Results, expected: Expected) -> None:
    comparisons = {
        "hits": (results.hits, expected.hits),
        "noise lines": (results.noise, expected.noise),
        "hits per page": (dict(results.pages), dict(expected.pages)),
        "hits per minute": (results.minutes, dict(expected.minutes)),
        "errors per minute": ({m: n for m, n in results.errors.items() if n}, dict(expected.errors)),
        "readings": (sum(row[1] for row in results.climate), expected.readings),
        "broken readings": (len(results.broken), expected.broken),
        "the view's topic": (results.view_topic, results.minutes),
    }
    for what, (got, expectation) in comparisons.items():
        if got != expectation:
            raise DemoFailed(f"{what}: {got} instead of {expectation}")


if __name__ == "__main__":
    sys.exit(main())
