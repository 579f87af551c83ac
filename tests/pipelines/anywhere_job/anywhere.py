"""The pipeline of test_anywhere.py: a function of a package beside this file, dead letters, a table output, a table as state."""

from __future__ import annotations

import os

from pricing import rates
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from ottla.pipelines import Pipeline, changes_of, delta, join, topic

SUFFIX = os.environ["OTTLA_TEST_SUFFIX"]
FOLDER = os.environ["OTTLA_TEST_FOLDER"]
SHIPPED = os.environ.get("OTTLA_TEST_ARCHIVE") == "1"

anywhere = Pipeline("anywhere")
ORDERS = topic("orders", value="json", schema="n long, user string", dead_letter=f"orders.bad{SUFFIX}")
USERS = topic("users", value="json", schema="city string")


@anywhere.step(reads={"orders": ORDERS}, writes=topic(f"priced{SUFFIX}", value="json", key="n", partitions=2))
def priced(orders: DataFrame) -> DataFrame:
    from_archive = udf(lambda _: rates.of_the_archive() if SHIPPED else "")
    return orders.select(
        "n",
        udf(rates.priced)("n").alias("price"),
        udf(lambda _: rates.python_of_the_task())("n").alias("python"),
        from_archive("n").alias("word"),
    )


@anywhere.step(reads={"orders": ORDERS}, writes=delta(f"{FOLDER}/delta"))
def stored(orders: DataFrame) -> DataFrame:
    return orders.select("n", "user")


@anywhere.step(
    reads={"orders": ORDERS, "users": changes_of(USERS)},
    writes=topic(f"seen{SUFFIX}", value="json", key="n", partitions=2),
)
def seen(orders: DataFrame, users: DataFrame) -> DataFrame:
    return join(orders, users, on="user").select("n", "city")
