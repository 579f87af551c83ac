"""Hits counted by page in a view, and passed on: what the tests of the commands run."""

from __future__ import annotations

import os

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, topic, view

OUT = os.environ["OTTLA_TEST_OUT"]
HITS = topic("hits", value="json", schema="page string, ms long")

hits = Pipeline("hits")


@hits.step(reads={"rows": HITS}, writes=topic("slow", value="json", key="page"))
def slow(rows):
    return rows.where("ms >= 50").select("page", "ms")


@hits.step(reads={"rows": HITS}, writes=view("pages", f"{OUT}/pages", keys=["page"]), output_mode="update")
def pages(rows):
    return rows.groupBy("page").agg(F.count("*").alias("n"), F.sum("ms").alias("ms"))
