"""A compacted topic as a table, from its decoded records: its newest rows, or the stream of its changes.

A record without a value deletes its key, and so does a value that cannot be decoded: an older value is not the newest.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.connect.sinks.base import DELETED


def newest_rows(records: DataFrame) -> DataFrame:
    """A global table: one row for each key that has a value."""
    newest = (
        records.where("key is not null")
        .groupBy("topic", "partition", "key")
        .agg(F.max_by(F.struct(_readable(), "offset", "timestamp"), "offset").alias("newest"))
    )
    return newest.where("newest.value is not null").select(
        *_columns(records, "newest.value"),
        F.col("key").cast("string").alias("_key"),
        F.col("newest.offset").alias("_offset"),
        F.col("newest.timestamp").alias("_timestamp"),
    )


def changes(records: DataFrame) -> DataFrame:
    """Every change of the table: the new row, or `_deleted` and no row."""
    rows = records.where("key is not null").withColumn("value", _readable())
    return rows.select(
        *_columns(records, "value"),
        F.col("key").cast("string").alias("_key"),
        F.isnull("value").alias(DELETED),
        *[F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")],
    )


def _readable() -> Column:
    return F.when(F.col("error").isNull(), F.col("value")).alias("value")


def _columns(records: DataFrame, value: str) -> list[Column]:
    struct = records.schema["value"].dataType.typeName() == "struct"
    return [F.col(f"{value}.*")] if struct else [F.col(value).alias("value")]
