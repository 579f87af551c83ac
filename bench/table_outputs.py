"""Table outputs beside their peers on the same rows, and the driver's memory.

    python -m bench.table_outputs                       both parts, 15 minutes on a quiet machine of two cores
    python -m bench.table_outputs --quick               a check of the script, which measures nothing

Rates: each kind of table has one Spark session, in which its writers take turns; each writes once to warm up. Delta and
Iceberg run on PySpark 4.1.4, the newest that their jars run on, PostgreSQL and Parquet on the installed PySpark. CPU is
that of Spark, its Python workers and the database. Memory: all four outputs on `local-cluster`, so that the driver is a
process of its own, with `spark.driver.maxResultSize=1m`. Counted is the peak of the JVM with the Python processes of the
driver, whose shared pages count once. The run fails if the driver has more than 1 GB or grows by more
than 200 MB between the first and the last batch of an output.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.ottla_server import ROOT
from tests.support.postgresql import postgresql
from tests.support.spark_jars import DELTA, ICEBERG, POSTGRESQL, TABLES_PYSPARK, older_pyspark, spark_jars
from tests.support.sql_databases import query

from bench import machine

KINDS = ("delta", "iceberg", "postgresql", "parquet")
_ROW_BYTES = 1000
_BATCHES = 10
_MOST_MB, _GROWTH_MB = 1000, 200
_WORKER = Path(__file__).with_name("table_worker.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    servers: tuple[int, ...] = ()


class Worker:
    """A Spark session in a process of its own."""

    def __init__(self, settings: Mapping[str, str], log: Path, packages: Path | None = None) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        path = os.pathsep.join(map(str, ([packages] if packages else []) + [ROOT / "src", ROOT]))
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER), json.dumps(settings)],
            env={**plain, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("wb"), text=True,
        )  # fmt: skip
        self._log = log
        self.version = str(self._answer()["version"])

    def ask(self, **words: Any) -> dict[str, float]:
        if self._process.stdin is None:
            raise RuntimeError("the worker has no stdin")
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def write(self, write: Write, rows: int) -> dict[str, float]:
        return self.ask(do="write", rows=rows, **{name: getattr(write, name) for name in Write.__dataclass_fields__})

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise SystemExit(f"Spark ended: {self._log.read_text()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def worker(settings: Mapping[str, str], folder: Path, packages: Path | None = None) -> Iterator[Worker]:
    made = Worker({"spark.driver.memory": "2g", **settings}, folder / "spark.log", packages)
    try:
        yield made
    finally:
        made.close()


class Bed:
    """The writers of each kind; every write has a table of its own, which is removed at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def next_folder(self) -> str:
        return str(self._folder / f"table-{next(self._numbers)}")

    def delta(self) -> dict[str, Write]:
        return {name: self._in_a_folder(name) for name in ("delta", "ottla-delta")}

    def parquet(self) -> dict[str, Write]:
        return {name: self._in_a_folder(name) for name in ("parquet", "ottla-files")}

    def iceberg(self) -> dict[str, Write]:
        number = next(self._numbers)
        table = f"lake.bench.t{number}"
        columns = "n bigint, key string, price double, at timestamp, filling string"
        return {
            "iceberg": Write(
                format="iceberg", path=table,
                before=(f"create table {table} ({columns}) using iceberg",), after=(f"drop table {table} purge",),
            ),
            "ottla-iceberg": self.own_iceberg(f"t{number}", remove=True),
        }  # fmt: skip

    def own_iceberg(self, table: str, *, remove: bool) -> Write:
        folder = self._folder / "own"
        options = {"table": f"bench.{table}", "catalog.uri": f"sqlite:///{folder}.db", "catalog.warehouse": str(folder)}
        return Write(format="ottla-iceberg", options=options, remove=(f"{folder}/bench/{table}",) if remove else ())

    def postgresql(self, uri: str) -> dict[str, Write]:
        number = next(self._numbers)
        servers = (postmaster(uri),)
        jdbc = {"url": f"jdbc:postgresql://{uri.partition('@')[2]}", "user": "ottla", "driver": "org.postgresql.Driver"}
        tuned = {"reWriteBatchedInserts": "true", "batchsize": "10000"}
        return {
            "jdbc": Write(format="jdbc", options={**jdbc, "dbtable": f"plain_{number}"}, servers=servers),
            "jdbc, tuned": Write(
                format="jdbc", options={**jdbc, **tuned, "dbtable": f"tuned_{number}"}, servers=servers
            ),
            "ottla-sql": Write(format="ottla-sql", options={"url": uri, "dbtable": f"own_{number}"}, servers=servers),
        }

    def _in_a_folder(self, name: str) -> Write:
        path = self.next_folder()
        options = {"path": path} if name.startswith("ottla-") else {}
        return Write(format=name, options=options, path=None if options else path, remove=(path,))


def postmaster(uri: str) -> int:
    folder = query(uri, "select current_setting('data_directory')")[0][0]
    return int(Path(folder, "postmaster.pid").read_text().split()[0])


def rates(kind: str, place: Path, rows: int, rounds: int) -> dict[str, Any]:
    bed = Bed(place)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=place) as folder:
        if kind == "delta":
            settings = {
                "spark.jars": spark_jars(DELTA),
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            }
            with worker({"master": "local[2]", **settings}, Path(folder), older_pyspark(TABLES_PYSPARK)) as session:
                return in_turns(kind, session, bed.delta, rows, rounds)
        if kind == "iceberg":
            settings = {
                "spark.jars": spark_jars(ICEBERG),
                "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.lake.type": "hadoop",
                "spark.sql.catalog.lake.warehouse": f"{folder}/lake",
            }
            with worker({"master": "local[2]", **settings}, Path(folder), older_pyspark(TABLES_PYSPARK)) as session:
                return in_turns(kind, session, bed.iceberg, rows, rounds)
        if kind == "parquet":
            with worker({"master": "local[2]"}, Path(folder)) as session:
                return in_turns(kind, session, bed.parquet, rows, rounds)
        with (
            postgresql() as uri,
            worker({"master": "local[2]", "spark.jars": spark_jars(POSTGRESQL)}, Path(folder)) as session,
        ):
            return in_turns(kind, session, lambda: bed.postgresql(uri), rows, rounds, uri)


def in_turns(kind: str, session: Worker, writes: Any, rows: int, rounds: int, uri: str = "") -> dict[str, Any]:
    measured: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds + 1):
        ways = writes()
        names = list(ways)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            answer = session.write(ways[name], rows)
            if number:  # the first round warms up
                measured.setdefault(name, []).append(answer)
            if uri:
                query(uri, f"drop table {ways[name].options['dbtable']}")
                query(uri, "checkpoint")  # the pages of one writer do not become the work of the next
    print(f"\n{kind}, PySpark {session.version}, {rows * _ROW_BYTES / 1e6:.0f} MB, {rounds} rounds")
    size = rows * _ROW_BYTES / 1e6
    peer = next(iter(writes()))
    summary: dict[str, dict[str, Any]] = {}
    for name in (way for way in ways if way in measured):
        speeds = [size / answer["seconds"] for answer in measured[name]]
        costs = [answer["cpu"] / size * 1000 for answer in measured[name]]
        summary[name] = {"MB/s": statistics.median(speeds), "cpu s/GB": statistics.median(costs), "all": measured[name]}
        faster = summary[name]["MB/s"] / summary[peer]["MB/s"]
        cheaper = summary[peer]["cpu s/GB"] / summary[name]["cpu s/GB"]
        print(
            f"  {name:<14} {summary[name]['MB/s']:7.1f} MB/s ({min(speeds):.1f} to {max(speeds):.1f}, {faster:.2f}x)   "
            f"{summary[name]['cpu s/GB']:6.2f} CPU s/GB ({min(costs):.2f} to {max(costs):.2f}, {cheaper:.2f}x)",
            flush=True,
        )
    return summary


def driver_memory(kinds: list[str], place: Path, gigabytes: float, master: str) -> dict[str, Any]:
    rows = int(gigabytes * 1e9 / _ROW_BYTES / _BATCHES)
    settings = {"spark.driver.maxResultSize": "1m", "spark.driver.memory": "512m", "spark.executor.memory": "1g"}
    print(f"\nmemory of the driver, {gigabytes:g} GB to each, {master}")
    figures: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=place) as folder,
        postgresql() as uri,
        worker({"master": master, **settings}, Path(folder)) as session,
    ):
        bed = Bed(Path(folder))
        table = Path(folder, "table")
        writes = {
            "delta": Write(format="ottla-delta", options={"path": f"{table}-delta"}),
            "iceberg": bed.own_iceberg("rows", remove=False),
            "postgresql": Write(format="ottla-sql", options={"url": uri, "dbtable": "rows"}),
            "parquet": Write(format="ottla-files", options={"path": f"{table}-files"}),
        }
        for kind in kinds:
            figures[kind] = _memory_of(session, kind, writes[kind], rows)
    too_much = [kind for kind in kinds if figures[kind]["last"] > _MOST_MB or figures[kind]["growth"] > _GROWTH_MB]
    if too_much:
        raise SystemExit(f"the driver's memory is not flat, or above {_MOST_MB} MB: {', '.join(too_much)}")
    return figures


def _memory_of(session: Worker, kind: str, write: Write, rows: int) -> dict[str, Any]:
    begun, peaks = time.monotonic(), []
    for version in range(_BATCHES):
        marker = {"txnAppId": "bench", "txnVersion": str(version)}
        watched = {"rows": rows, "format": write.format, "options": {**write.options, **marker}, "path": None}
        peaks.append(session.ask(do="watched write", **watched))
    totals = [peak["jvm"] + peak["python"] for peak in peaks]
    seconds = time.monotonic() - begun
    print(
        f"  {kind:<10} {rows * _BATCHES * _ROW_BYTES / 1e6 / seconds:6.1f} MB/s   first batch {totals[0]:.0f} MB, last "
        f"{totals[-1]:.0f} MB (JVM {peaks[-1]['jvm']:.0f}, Python {peaks[-1]['python']:.0f}), grew by {totals[-1] - totals[0]:.0f}",
        flush=True,
    )
    return {"first": totals[0], "last": totals[-1], "growth": totals[-1] - totals[0], "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.table_outputs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--megabytes", type=float, default=500.0, help="of one write of the rates; 0 leaves them out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--gigabytes", type=float, default=5.0, help="to each output of the memory part; 0 leaves it out"
    )
    parser.add_argument("--master", default="local-cluster[2,1,1536]", help="of the memory part")
    parser.add_argument("--folder", type=Path, help="for tables, with 30 GB free (default: the temporary folder)")
    parser.add_argument("--results", type=Path, help="write the figures there, as JSON")
    parser.add_argument("--quick", action="store_true", help="20 MB a write, 0.1 GB for the memory, one round")
    asked = parser.parse_args()
    if asked.quick:
        asked.megabytes, asked.gigabytes, asked.rounds = 20.0, 0.1, 1
    begun, load, figures = time.monotonic(), machine.load_average(), {}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=asked.folder) as place:
        for kind in asked.kinds if asked.megabytes else ():
            figures[kind] = rates(kind, Path(place), int(asked.megabytes * 1e6 / _ROW_BYTES), asked.rounds)
        if asked.gigabytes:
            figures["memory"] = driver_memory(asked.kinds, Path(place), asked.gigabytes, asked.master)
    print(
        f"\n{machine.tag()}, load {load[0]} before, {machine.load_average()[0]} after, {time.monotonic() - begun:.0f} s"
    )
    if asked.results:
        asked.results.write_text(json.dumps({"load": load, **figures}, indent=1))


if __name__ == "__main__":
    main()
