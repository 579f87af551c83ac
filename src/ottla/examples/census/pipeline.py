"""The census: nobody goes from house to house. Births and deaths are a log, and the population follows for any month."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, topic, view

TABLES = os.environ.get("OTTLA_TABLES", "tables")
LIFE = "person long, town string, event string, day date"
EVENTS = topic("logging.census.lives.json", value="json", schema=LIFE, dead_letter="logging.census.lives.dead")
POPULATION = "select sum(births - deaths)::bigint from changes where month <= '{month}'"
"""The population at the end of a month, from the table of changes: a sum up to that month."""

census = Pipeline("census")


@census.step(
    reads={"events": EVENTS},
    writes=view("logging.census.changes.json", f"{TABLES}/changes", keys=["town", "month"], partitions=2),
    output_mode="update",
)
def changes(events: DataFrame) -> DataFrame:
    counted = events.groupBy("town", F.date_format("day", "yyyy-MM").alias("month"))
    return counted.agg(
        F.count_if(F.col("event") == "birth").alias("births"), F.count_if(F.col("event") == "death").alias("deaths")
    )


@census.step(
    reads={"events": EVENTS},
    writes=view("logging.census.towns.json", f"{TABLES}/towns", keys=["town"], partitions=1),
    output_mode="update",
)
def towns(events: DataFrame) -> DataFrame:
    """The population now, by town: a row that each event changes."""
    change = F.when(F.col("event") == "birth", 1).otherwise(-1)
    return events.groupBy("town").agg(F.sum(change).alias("population"))
