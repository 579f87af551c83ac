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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ottla.demo import show
from ottla.demo.feed import Expected, access_log, devices, thermostats
from ottla.env.logging import configure
from ottla.examples.progress import Progress
from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = 12_000
READINGS = 4_000
SEED = 20180301
SMALL = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
"""So little data needs one task where rows are exchanged: each task costs time in each batch."""
NEEDED = {"confluent_kafka": "confluent-kafka", "pyspark": "'ottla[spark]'", "deltalake": "'ottla[spark]'"}


class DemoFailed(UserError):
    """A step of the demo did not end as it should."""


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

    expected = Expected()
    began = time.perf_counter()
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(console, "a log, data, pipelines, results"))
        with progress.stage("start a log") as stage:
            bootstrap = stage.note = stack.enter_context(a_log(servers))
        feeding = stack.enter_context(ThreadPoolExecutor(1)).submit(feed, bootstrap, folder, expected)
        written = lambda: (expected.lines + expected.readings, LINES + READINGS)  # noqa: E731 - of two stages
        with progress.stage("start Spark", written) as stage:
            session = spark("local[2]", low_footprint=True, config=SMALL, log_file=str(folder / "spark.log"))
            stage.note = f"{session.version}, in this process; the log is fed meanwhile"
        try:
            with progress.stage("feed the log", written) as stage:
                feeding.result()
                readings = expected.readings + expected.broken
                stage.note = f"{expected.lines:,} lines of an access log, {readings:,} readings"
            run_pipelines(session, bootstrap, folder, progress)
        finally:
            session.stop()
        with progress.stage("compare") as stage:
            results = show.collect(bootstrap, folder)
            check(results, expected)
            stage.note = "counts are equal to a computation without Spark"
    for table in show.tables(results):
        console.print(table)
    where = f"Delta tables and results.db are in {folder}" if kept else "--keep DIR keeps the Delta tables and SQLite"
    console.print(f"{time.perf_counter() - began:.1f} s together. {where}.", highlight=False)


def run_pipelines(session: SparkSession, bootstrap: str, folder: Path, progress: Progress) -> None:
    from ottla.demo.steps import pipelines
    from ottla.pipelines.build import RunSettings
    from ottla.pipelines.run import PipelineRun

    settings = RunSettings(bootstrap_servers=bootstrap, checkpoints=str(folder / "checkpoints"))
    for pipeline in pipelines(folder):
        with progress.stage(f"pipeline {pipeline.name}") as stage:
            work = PipelineRun(session, pipeline, settings)
            work.once(progress.on_queries)
            rows = sum(running.rows for running in work.running)
            stage.note = f"{len(pipeline.steps)} steps, {rows:,} rows in, exactly once"


def feed(bootstrap: str, folder: Path, expected: Expected) -> None:
    import sqlite3

    from ottla.connect.sender import Outgoing, Sender

    show.create_topics(bootstrap, {"access-log": 2, "hits": 2, "thermostats": 2})
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
