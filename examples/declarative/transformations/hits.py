"""A topic into a streaming table, and the slow hits into a topic."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from ottla.pipelines.datasource import OttlaDataSource

spark = SparkSession.active()
spark.dataSource.register(OttlaDataSource)
CLIENT = {"kafka.bootstrap.servers": os.environ.get("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")}

dp.create_sink("slow_topic", format="ottla", options={**CLIENT, "topic": "slow"})


@dp.table
def hits() -> DataFrame:
    rows = spark.readStream.format("ottla").options(**CLIENT, subscribe="hits", startingOffsets="earliest").load()
    return rows.selectExpr("cast(key as string) as page", "cast(cast(value as string) as long) as ms")


@dp.append_flow(target="slow_topic")
def slow() -> DataFrame:
    return spark.readStream.table("hits").where("ms >= 50").selectExpr("page as key", "cast(ms as string) as value")
