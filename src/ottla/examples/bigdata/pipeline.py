"""Big data: a batch layer and a speed layer over one log. One function makes both views, and in the end both are equal.

The speed view follows the log batch after batch. The batch view reads the whole log again and replaces its table. The table
`master` has every click, for all questions that nobody asked yet.
"""

from __future__ import annotations

import os
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, delta, topic, view

TABLES = os.environ.get("OTTLA_TABLES", "tables")
CLICK = "page string, visitor string, ms long"
CLICKS = topic("user.shop.clicks.json", value="json", schema=CLICK, dead_letter="user.shop.clicks.dead")
WHOLE_LOG = replace(CLICKS, options={"maxOffsetsPerTrigger": "1000000000"})

speed = Pipeline("speed")
batch = Pipeline("batch")


def pages(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("page").agg(
        F.count("*").alias("clicks"), F.sum("ms").alias("ms"), F.max("ms").alias("slowest")
    )


@speed.step(reads={"clicks": CLICKS}, writes=delta(f"{TABLES}/master"))
def master(clicks: DataFrame) -> DataFrame:
    return clicks.select("page", "visitor", "ms")


@speed.step(
    reads={"clicks": CLICKS},
    writes=view("user.shop.speed.json", f"{TABLES}/speed", keys=["page"], partitions=1),
    output_mode="update",
)
def follow(clicks: DataFrame) -> DataFrame:
    return pages(clicks)


@batch.step(reads={"clicks": WHOLE_LOG}, writes=delta(f"{TABLES}/batch"), output_mode="complete")
def recompute(clicks: DataFrame) -> DataFrame:
    return pages(clicks)
