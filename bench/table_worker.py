"""One Spark session that writes tables as it is told on stdin, one JSON line for each write: run by `bench.table_outputs`.

It runs on the installed PySpark and on an older one, so that Delta's and Iceberg's jars write in the same JVM as Ottla.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.process import cpu_seconds, family
from ottla.pipelines.session import spark

_FILLING = 29
"""MD5 sums in the text of a row: with the other columns 1,000 bytes."""
_WATCH_S = 0.5


def rows(session: SparkSession, count: int) -> DataFrame:
    """The same rows for every writer, in four tasks."""
    return session.range(0, count, 1, 4).selectExpr(
        "id as n", "cast(id as string) as key", "id * 1.5d as price",
        "timestamp_micros(1700000000000000 + id * 1000) as at",
        f"repeat(md5(cast(id as string)), {_FILLING}) as filling",
    )  # fmt: skip


def write(session: SparkSession, ask: dict[str, Any]) -> dict[str, Any]:
    for statement in ask.get("before", ()):
        session.sql(statement)
    begun, cpu = time.perf_counter(), _cpu(ask)
    rows(session, ask["rows"]).write.format(ask["format"]).options(**ask["options"]).mode("append").save(
        ask.get("path")
    )
    answer = {"seconds": time.perf_counter() - begun, "cpu": _cpu(ask) - cpu}
    for statement in ask.get("after", ()):
        session.sql(statement)
    for folder in ask.get("remove", ()):
        shutil.rmtree(folder, ignore_errors=True)
    return answer


def _cpu(ask: dict[str, Any]) -> float:
    """Of this process, the JVM, the Python workers and the database."""
    return cpu_seconds(os.getpid()) + sum(cpu_seconds(pid) for pid in ask.get("servers", ()))


def watched_write(session: SparkSession, ask: dict[str, Any]) -> dict[str, float]:
    """The driver's peak in MB: the JVM's own record, and the most that its Python processes had together."""
    peak, written = {"jvm": 0.0, "python": 0.0}, threading.Event()

    def watch() -> None:
        while True:
            is_last = written.wait(_WATCH_S)
            for name, size in _memory().items():
                peak[name] = max(peak[name], size)
            if is_last:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        write(session, ask)
    finally:
        written.set()
        watcher.join()
    return peak


def _memory() -> dict[str, float]:
    jvm = python = 0.0
    for pid in _driver_processes():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                jvm += _mb(Path(f"/proc/{pid}/status"), "VmHWM")
            else:
                python += _mb(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")
        except (OSError, StopIteration):  # the process has ended
            continue
    return {"jvm": jvm, "python": python}


def _driver_processes() -> Iterator[int]:
    executors: set[int] = set()
    for pid in family(os.getpid()):
        if pid in executors:
            continue
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command:
            executors |= set(family(pid))
        else:
            yield pid


def _mb(path: Path, name: str) -> float:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name)) * 1024 / 1e6


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the JVM is no answer
    settings = json.loads(sys.argv[1])
    session = spark(settings.pop("master"), config=settings)
    print(json.dumps({"version": session.version}), file=answers, flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        answer = (write if ask["do"] == "write" else watched_write)(session, ask)
        print(json.dumps(answer), file=answers, flush=True)
    session.stop()


if __name__ == "__main__":
    main()
