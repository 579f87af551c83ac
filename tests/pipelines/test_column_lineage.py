"""The columns of a result and the columns of the inputs that each is made of, through Spark's plan."""

from __future__ import annotations

import re

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines.build import RunSettings
from ottla.pipelines.column_lineage import column_sources
from ottla.pipelines.graph import graph, svg
from ottla.pipelines.graph_columns import node_columns
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import delta, topic, view


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


def test_the_graph_has_the_columns_of_topics_and_tables(spark, tmp_path):
    """A table that an earlier step makes need not be there."""
    made = Pipeline("shop")
    path = str(tmp_path / "totals")

    @made.step(
        reads={"orders": topic("orders", value="json", schema="id long, total double")},
        writes=view("totals", path, keys=["id"]),
        output_mode="update",
    )
    def totals(orders):
        return orders.groupBy("id").agg(F.sum("total").alias("sum_of_all_orders_of_this_customer"))

    @made.step(
        reads={"orders": topic("orders", value="json", schema="id long, total double"), "totals": delta(path)},
        writes=topic("shares", value="json"),
    )
    def shares(orders, totals):
        return orders.join(totals, "id").selectExpr("id", "'<b>' as `a<b`")

    columns = node_columns(spark, made, RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints=""))
    nodes = {node["id"]: node for node in graph(made, columns)["nodes"]}
    assert nodes["topic:orders"]["columns"] == [{"name": "id", "type": "bigint"}, {"name": "total", "type": "double"}]
    assert [column["name"] for column in nodes["view:totals"]["columns"]] == [
        "id",
        "sum_of_all_orders_of_this_customer",
    ]
    assert "columns" not in nodes["step:totals"]
    drawing = svg(made, columns)
    assert "total double" in drawing
    assert "a&lt;b string" in drawing
    assert re.search(r">…\w+_customer double<", drawing)
    assert drawing.count("<rect") == len(nodes)
    assert svg(made).count("<text") == len(nodes), "without columns a node has its name only"
