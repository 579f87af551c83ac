"""Data pipelines on Spark through PySpark: the data source `ottla`, pure functions between topics, and their runs."""

from ottla.pipelines.pipeline import Pipeline, load_pipelines
from ottla.pipelines.ports import (
    Format,
    delta,
    files,
    iceberg,
    parquet,
    spark_table,
    sql_table,
    table_of,
    topic,
    view,
)
from ottla.pipelines.session import spark

__all__ = [
    "Format",
    "Pipeline",
    "delta",
    "files",
    "iceberg",
    "load_pipelines",
    "parquet",
    "spark",
    "spark_table",
    "sql_table",
    "table_of",
    "topic",
    "view",
]
