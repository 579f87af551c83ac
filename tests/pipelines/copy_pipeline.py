"""Log to log, to Delta, to SQL and to Parquet: what the rounds of kill -9 and the cluster test run."""

from __future__ import annotations

import os

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, delta, parquet, sql_table, topic

OUT = os.environ["OTTLA_TEST_OUT"]
DATABASE = os.environ.get("OTTLA_TEST_DATABASE", f"sqlite:///{OUT}/rows.db")
PARQUET = os.environ.get("OTTLA_TEST_PARQUET", f"{OUT}/parquet")
SUFFIX = os.environ.get("OTTLA_TEST_SUFFIX", "")
SOURCE = topic("in", value="json", schema="n long, word string")

copy = Pipeline("copy")


@copy.step(reads={"rows": SOURCE}, writes=topic(f"out{SUFFIX}", value="json", key="word"))
def to_log(rows):
    return rows.select("n", F.upper("word").alias("word"))


@copy.step(reads={"rows": SOURCE}, writes=delta(f"{OUT}/delta"))
def to_delta(rows):
    return rows.select("n")


@copy.step(reads={"rows": SOURCE}, writes=sql_table(DATABASE, "rows"))
def to_sql(rows):
    return rows.select("n")


@copy.step(reads={"rows": SOURCE}, writes=parquet(PARQUET, partition_by=["word"]))
def to_parquet(rows):
    return rows.select("n", "word")


@copy.step(
    reads={"rows": topic(f"out{SUFFIX}", value="json", schema="n long, word string")},
    writes=topic(f"counts{SUFFIX}", value="json", key="word"),
    output_mode="update",
)
def count(rows):
    return rows.groupBy("word").agg(F.count("*").alias("c"), F.sum("n").alias("s"))
