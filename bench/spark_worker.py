"""One Spark session that is told on stdin what to do and answers with one JSON line each: run by `bench.pipelines`.

It runs in two environments (ours, and one with the official connector), so it imports nothing but PySpark at its top.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def cpu_seconds(root: int) -> float:
    """Of this process and all below it: the JVM and the Python workers."""
    ticks, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total = 0
    for pid, own in ticks.items():
        above = pid
        while above in parents and above != root:
            above = parents[above]
        total += own if above == root else 0
    return total / os.sysconf("SC_CLK_TCK")


def session(packages: str) -> SparkSession:
    settings = {"spark.driver.memory": "2g", "spark.sql.execution.arrow.maxRecordsPerBatch": "20000"}
    if not packages:
        from ottla.pipelines.session import spark

        return spark("local[2]", config=settings, log_file=os.devnull)
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", packages)
    for name, value in {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **settings}.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def read(spark: SparkSession, ask: dict[str, Any]) -> dict[str, Any]:
    frame = spark.read.format(ask["format"]).options(**ask["options"]).load()
    rows, size = frame.selectExpr("count(*)", "sum(length(value))").collect()[0]
    return {"rows": rows, "bytes": size}


def write(spark: SparkSession, ask: dict[str, Any]) -> dict[str, Any]:
    rows: DataFrame = spark.range(0, ask["rows"], 1, 4).selectExpr(
        "cast(id as string) as key", f"cast(repeat(char(97 + id % 26), {ask['size']}) as binary) as value"
    )
    rows.write.format(ask["format"]).options(**ask["options"]).mode("append").save()
    return {"rows": ask["rows"], "bytes": ask["rows"] * ask["size"]}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the JVM prints must not be mistaken for an answer
    began = time.perf_counter()
    spark = session(sys.argv[1])
    print(json.dumps({"version": spark.version, "seconds": time.perf_counter() - began}), file=answers, flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        began, cpu = time.perf_counter(), cpu_seconds(os.getpid())
        found = {"read": read, "write": write}[ask["do"]](spark, ask)
        found |= {"seconds": time.perf_counter() - began, "cpu": cpu_seconds(os.getpid()) - cpu}
        print(json.dumps(found), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
