"""The pipeline that is recorded: a copy of this file is in the archive, and later versions run the copy.

It writes to a topic (exactly once), bad records to a dead-letter topic, to a view whose counts are Spark's state (a topic
and a Delta table), to SQL and to Parquet.
"""

from __future__ import annotations

import os

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, parquet, sql_table, topic, view

OUT = os.environ["OTTLA_TEST_OUT"]
HITS = topic("hits", value="json", schema="page string, ms long", dead_letter="hits.bad")
SLOW = topic("slow", value="json", schema="page string, ms long")

hits = Pipeline("hits")


@hits.step(reads={"rows": HITS}, writes=topic("slow", value="json", key="page"))
def slow(rows):
    return rows.where("ms % 2 = 0").select("page", "ms")


@hits.step(reads={"rows": SLOW}, writes=view("pages", f"{OUT}/pages", keys=["page"]), output_mode="update")
def pages(rows):
    return rows.groupBy("page").agg(F.count("*").alias("n"), F.sum("ms").alias("ms"))


@hits.step(reads={"rows": SLOW}, writes=sql_table(f"sqlite:///{OUT}/rows.db", "rows"))
def to_sql(rows):
    return rows.select("ms")


@hits.step(reads={"rows": SLOW}, writes=parquet(f"{OUT}/parquet"))
def to_parquet(rows):
    return rows.select("ms")
