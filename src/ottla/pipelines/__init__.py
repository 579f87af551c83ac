"""Data pipelines on Spark through PySpark: the data source `ottla`, pure functions between topics, and their runs."""

from ottla.pipelines.joins import join, join_tables
from ottla.pipelines.outputs.files import committed_files
from ottla.pipelines.pipeline import Pipeline, load_pipelines
from ottla.pipelines.ports import (
    Format,
    changes_of,
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
    "changes_of",
    "committed_files",
    "delta",
    "files",
    "iceberg",
    "join",
    "join_tables",
    "load_pipelines",
    "parquet",
    "spark",
    "spark_table",
    "sql_table",
    "table_of",
    "topic",
    "view",
]
