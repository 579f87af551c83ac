"""Log to log, to Delta, to SQL and to Parquet: what the rounds of kill -9 and the cluster test run.

With OTTLA_TEST_CATALOG also: dead letters, a stream that joins a table (into Iceberg), two tables joined into a view, and
an input that may be created again.
"""

from __future__ import annotations

import json
import os

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, changes_of, delta, iceberg, join, join_tables, parquet, sql_table, topic, view

OUT = os.environ["OTTLA_TEST_OUT"]
DATABASE = os.environ.get("OTTLA_TEST_DATABASE", f"sqlite:///{OUT}/rows.db")
PARQUET = os.environ.get("OTTLA_TEST_PARQUET", f"{OUT}/parquet")
DELTA = os.environ.get("OTTLA_TEST_DELTA", f"{OUT}/delta")
SUFFIX = os.environ.get("OTTLA_TEST_SUFFIX", "")
CATALOG = os.environ.get("OTTLA_TEST_CATALOG", "")
"""Of Iceberg, as JSON. Only the pipeline of everything has that output."""
EVERYTHING = bool(CATALOG)
TRIGGER = os.environ.get("OTTLA_TEST_TRIGGER", "1 second")
SOURCE = topic(
    "in", value="json", schema="n long, word string, customer string", dead_letter="letters" if EVERYTHING else None
)

copy = Pipeline("copy")


@copy.step(reads={"rows": SOURCE}, writes=topic(f"out{SUFFIX}", value="json", key="word"), trigger=TRIGGER)
def to_log(rows):
    return rows.select("n", F.upper("word").alias("word"))


@copy.step(reads={"rows": SOURCE}, writes=delta(DELTA), trigger=TRIGGER)
def to_delta(rows):
    return rows.select("n")


@copy.step(reads={"rows": SOURCE}, writes=sql_table(DATABASE, "rows"), trigger=TRIGGER)
def to_sql(rows):
    return rows.select("n")


@copy.step(reads={"rows": SOURCE}, writes=parquet(PARQUET, partition_by=["word"]), trigger=TRIGGER)
def to_parquet(rows):
    return rows.select("n", "word")


@copy.step(
    reads={"rows": topic(f"out{SUFFIX}", value="json", schema="n long, word string")},
    writes=topic(f"counts{SUFFIX}", value="json", key="word"),
    output_mode="update",
    trigger=TRIGGER,
)
def count(rows):
    return rows.groupBy("word").agg(F.count("*").alias("c"), F.sum("n").alias("s"))


if EVERYTHING:
    CUSTOMERS = topic("customers", value="json", schema="version long")
    LEVELS = topic("levels", value="json", schema="level long")
    EXTRA = topic("extra", value="json", schema="n long", options={"onTopicRecreated": "restart"})

    @copy.step(
        reads={"rows": SOURCE, "customers": changes_of(CUSTOMERS)},
        writes=iceberg("lake.matched", catalog=json.loads(CATALOG)),
        trigger=TRIGGER,
    )
    def matched(rows, customers):
        return join(rows, customers, on="customer", how="left").select("n", "customer", "version")

    @copy.step(
        reads={"customers": changes_of(CUSTOMERS), "levels": changes_of(LEVELS)},
        writes=view("people", os.environ["OTTLA_TEST_PEOPLE"], keys=["customer"]),
        trigger=TRIGGER,
    )
    def people(customers, levels):
        return join_tables(customers, levels).withColumn("customer", F.col("_key"))

    @copy.step(reads={"rows": EXTRA}, writes=topic("extra-out", value="json"), trigger=TRIGGER)
    def extra(rows):
        return rows.select("n")
