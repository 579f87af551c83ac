"""The columns of a result and the columns of the inputs that each is made of, through Spark's plan."""

from __future__ import annotations

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines.column_lineage import column_sources


def test_sources_through_a_join_an_aggregate_and_a_union(spark):
    orders = spark.createDataFrame([(1, 2.0, "ada")], "id long, total double, user string")
    users = spark.createDataFrame([("ada", "uk")], "name string, country string")
    joined = orders.union(orders.where("id > 0")).join(users, F.col("user") == F.col("name"), "left")
    result = joined.groupBy("country").agg(F.sum("total").alias("sum"), F.max(F.concat("user", "country")).alias("who"))
    result = result.select("country", F.col("sum").alias("total"), "who", F.lit(1).alias("one"), F.lit(2).alias("_two"))
    assert column_sources(result, {"orders": orders, "users": users}) == {
        "country": [("users", "country", True)],
        "total": [("orders", "total", False)],
        "who": [("orders", "user", False), ("users", "country", False)],
    }
    assert column_sources(orders, {"orders": orders})["id"] == [("orders", "id", True)]
    opaque = orders.groupBy("user").applyInPandas(lambda rows: rows, "id long, total double, user string")
    assert column_sources(opaque, {"orders": orders}) == {}, "Spark does not look into a function of Python"
