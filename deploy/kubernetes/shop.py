"""The pipeline that pipeline.yaml runs: put your own here."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ottla.pipelines import Pipeline, topic

shop = Pipeline("shop")
ORDERS = topic("orders", value="json", schema="id long, page string, total double", dead_letter="orders.bad")


@shop.step(reads={"orders": ORDERS}, writes=topic("large-orders", value="json", key="id"))
def large(orders: DataFrame) -> DataFrame:
    return orders.where("total > 1000")


@shop.step(reads={"orders": ORDERS}, writes=topic("orders-by-page", value="json", key="page"), output_mode="update")
def by_page(orders: DataFrame) -> DataFrame:
    return orders.groupBy("page").count()
