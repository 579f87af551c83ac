"""The vocabulary of Kafka Streams, each word as a function from DataFrame to DataFrame.

With a log on port 9092 (`ottla up`), from the folder of the checkout:

    python examples/pipelines/vocabulary_feed.py localhost:9092
    ottla pipeline run examples/pipelines/vocabulary.py --once

The folder of the tables is OTTLA_TABLES, or `tables`.
tests/pipelines/test_vocabulary.py compares what each step writes with pandas.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from ottla.pipelines import Pipeline, changes_of, delta, join, join_tables, sql_table, table_of, topic, view

TABLES = os.environ.get("OTTLA_TABLES", "tables")
DATABASE = f"sqlite:///{TABLES}/vocabulary.db"
EVENT = "id long, user string, kind string, amount long, words string, at timestamp"
EVENTS = topic("events", value="json", schema=EVENT, dead_letter="events.bad")
MORE_EVENTS = topic("more-events", value="json", schema=EVENT)
USERS = topic("users", value="json", schema="name string, country string", compacted=True)
COUNTRIES = topic("countries", value="json", schema="country string, capital string", compacted=True)

vocabulary = Pipeline("vocabulary")


# Stateless: filter, map, flatMap, branch. A dict of DataFrames is a branch.
@vocabulary.step(
    reads={"events": EVENTS},
    writes={
        "large": topic("large", value="json", key="user"),
        "words": topic("words", value="json", key="word", partitions=2),
    },
)
def branch(events: DataFrame) -> dict[str, DataFrame]:
    large = events.where("amount >= 50").select("id", "user", (F.col("amount") * 2).alias("doubled"))
    words = events.select("user", F.explode(F.split("words", " ")).alias("word"))
    return {"large": large, "words": words}


# Merge of two topics, and a new key: records of one kind come together in one partition (Streams' repartition).
@vocabulary.step(
    reads={"events": EVENTS, "more": MORE_EVENTS},
    writes=topic("merged", value="json", key="kind", partitions=3),
)
def merge(events: DataFrame, more: DataFrame) -> DataFrame:
    both = events.select("id", "user", "kind", "amount").union(more.select("id", "user", "kind", "amount"))
    return both.repartition("kind")


# Count, aggregate, reduce: a table of users kept as a materialized view (compacted topic = Delta table).
@vocabulary.step(
    reads={"events": EVENTS}, writes=view("totals", f"{TABLES}/totals", keys=["user"]), output_mode="update"
)
def totals(events: DataFrame) -> DataFrame:
    return events.groupBy("user").agg(
        F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("amount").alias("largest")
    )


# Tumbling windows, emitted once and final (Streams' suppression until the window closes): append with a watermark.
@vocabulary.step(reads={"events": EVENTS}, writes=delta(f"{TABLES}/tumbling"))
def tumbling(events: DataFrame) -> DataFrame:
    counted = events.withWatermark("at", "2 minutes").groupBy(F.window("at", "1 minute"), "kind")
    return counted.agg(F.count("*").alias("n")).select(F.col("window.start").alias("start"), "kind", "n")


# Hopping windows: each event is in two of them. A hop of one second is a sliding window.
@vocabulary.step(reads={"events": EVENTS}, writes=sql_table(DATABASE, "hopping", keys=["start"]), output_mode="update")
def hopping(events: DataFrame) -> DataFrame:
    windows = events.withWatermark("at", "2 minutes").groupBy(F.window("at", "2 minutes", "1 minute"))
    return windows.agg(F.sum("amount").alias("total")).select(
        F.date_format("window.start", "yyyy-MM-dd HH:mm").alias("start"), "total"
    )


# Session windows: a user's events with less than thirty seconds between them.
@vocabulary.step(reads={"events": EVENTS}, writes=delta(f"{TABLES}/sessions"))
def sessions(events: DataFrame) -> DataFrame:
    counted = events.withWatermark("at", "2 minutes").groupBy("user", F.session_window("at", "30 seconds"))
    return counted.agg(F.count("*").alias("n")).select("user", F.col("session_window.start").alias("begin"), "n")


# Deduplication: an id counts once, its copies come within the watermark.
@vocabulary.step(reads={"events": EVENTS}, writes=topic("unique", value="json", key="user"))
def unique(events: DataFrame) -> DataFrame:
    return events.withWatermark("at", "2 minutes").dropDuplicatesWithinWatermark(["id"]).select("id", "user", "amount")


# Stream-stream join: two events of one user and amount on the two topics, at most a minute apart.
@vocabulary.step(reads={"left": EVENTS, "right": MORE_EVENTS}, writes=topic("pairs", value="json", key="user"))
def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
    one = left.withWatermark("at", "2 minutes").select(
        "user", F.col("id").alias("a"), F.col("at").alias("a_at"), "amount"
    )
    two = right.withWatermark("at", "2 minutes").select(
        F.col("user").alias("other"),
        F.col("id").alias("b"),
        F.col("at").alias("b_at"),
        F.col("amount").alias("b_amount"),
    )
    near = F.expr("user = other and amount = b_amount and b_at between a_at and a_at + interval 1 minute")
    return one.join(two, near).select("user", "a", "b")


# Stream-table join: the row that the user had at the event's time. The table is state by key.
@vocabulary.step(reads={"events": EVENTS, "users": changes_of(USERS)}, writes=topic("placed", value="json", key="user"))
def placed(events: DataFrame, users: DataFrame) -> DataFrame:
    return join(events, users, on="user", how="left").select("id", "user", "country")


# Table-table join by a foreign key, the country of a user: a table with tombstones. Without `foreign_key`, by the same key.
@vocabulary.step(
    reads={"users": changes_of(USERS), "countries": changes_of(COUNTRIES)},
    writes=topic("located", value="json", key="_key", compacted=True),
)
def located(users: DataFrame, countries: DataFrame) -> DataFrame:
    return join_tables(users, countries, how="left", foreign_key="country")


# Global tables: whole tables for Spark's own joins, on any column. A tombstone removes a row.
@vocabulary.step(
    reads={"events": EVENTS, "users": table_of(USERS), "countries": table_of(COUNTRIES)},
    writes=topic("enriched", value="json", key="user"),
)
def enriched(events: DataFrame, users: DataFrame, countries: DataFrame) -> DataFrame:
    known = users.select(F.col("_key").alias("user"), "country").join(
        countries.select("country", "capital"), "country", "left"
    )
    return events.select("id", "user").join(known, "user", "left")


class Highest(StatefulProcessor):
    """State of one's own: the highest amount of a user so far, told only when it rises."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._highest = handle.getValueState("highest", "amount long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - Spark's names
        before = self._highest.get()[0] if self._highest.exists() else None
        highest = max(int(part["amount"].max()) for part in rows)
        if before is None or highest > before:
            self._highest.update((highest,))
            yield pd.DataFrame({"user": [key[0]], "highest": [highest]})

    def close(self) -> None:
        """Nothing is held open."""


@vocabulary.step(reads={"events": EVENTS}, writes=sql_table(DATABASE, "highest", keys=["user"]), output_mode="update")
def highest(events: DataFrame) -> DataFrame:
    return (
        events.select("user", "amount")
        .groupBy("user")
        .transformWithStateInPandas(Highest(), "user string, highest long", "Update", "None")
    )
