"""Logs and metrics of many machines come into one topic, and go to a lake, to alerts and to a dashboard."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, delta, topic, view

TABLES = os.environ.get("OTTLA_TABLES", "tables")
RECORD = "machine string, kind string, level string, text string, metric string, value double, at timestamp"
RECORDS = topic("logging.machines.all.json", value="json", schema=RECORD, dead_letter="logging.machines.all.dead")
ERRORS, LINES_OF_AN_ERROR, CPU = 3, 5, 90.0
"""A minute of a machine is an alert with 3 errors or more, if each fifth line is an error, or with so much CPU on average."""

logs = Pipeline("logs")


@logs.step(reads={"records": RECORDS}, writes=delta(f"{TABLES}/lake", partition_by=["kind"]))
def lake(records: DataFrame) -> DataFrame:
    """Every record, by kind, for later questions."""
    return records.select("machine", "kind", "level", "text", "metric", "value", "at")


@logs.step(
    reads={"records": RECORDS},
    writes=view("logging.machines.alerts.json", f"{TABLES}/alerts", keys=["machine", "minute"], partitions=2),
    output_mode="update",
)
def alerts(records: DataFrame) -> DataFrame:
    cpu = F.when(F.col("metric") == "cpu", F.col("value"))
    minutes = records.groupBy("machine", F.window("at", "1 minute").alias("minute")).agg(
        F.count_if(F.col("level") == "ERROR").alias("errors"),
        F.count("level").alias("lines"),
        F.round(F.avg(cpu), 1).alias("cpu"),
    )
    failed = (F.col("errors") >= ERRORS) & (F.col("errors") * LINES_OF_AN_ERROR >= F.col("lines"))
    reason = F.when(failed, "errors").when(F.col("cpu") >= CPU, "cpu").otherwise("")
    minute = F.date_format("minute.start", "HH:mm").alias("minute")
    # An alert may end when more records of its minute come: its row is deleted then.
    return minutes.select("machine", minute, "errors", "cpu", reason.alias("reason"), (reason == "").alias("_deleted"))


@logs.step(
    reads={"records": RECORDS},
    writes=view("logging.machines.dashboard.json", f"{TABLES}/dashboard", keys=["machine"], partitions=2),
    output_mode="update",
)
def dashboard(records: DataFrame) -> DataFrame:
    cpu = F.when(F.col("metric") == "cpu", F.col("value"))
    return records.groupBy("machine").agg(
        F.count("*").alias("records"),
        F.count_if(F.col("level") == "ERROR").alias("errors"),
        F.max(cpu).alias("highest_cpu"),
        F.date_format(F.max("at"), "HH:mm:ss").alias("last_seen"),
    )
