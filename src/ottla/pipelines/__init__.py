"""Data pipelines on Spark through PySpark: the data source `ottla`, pure functions between topics, and their runs.

A name is imported at its first use: without `ottla[spark]`, the first use reports what to install.
"""

from typing import TYPE_CHECKING

from ottla.model.extras import SPARK, extra_needed

if TYPE_CHECKING:
    from ottla.pipelines.expectations import expect
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
    "expect",
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

_MODULES = {
    "Format": "ports",
    "Pipeline": "pipeline",
    "changes_of": "ports",
    "committed_files": "outputs.files",
    "delta": "ports",
    "expect": "expectations",
    "files": "ports",
    "iceberg": "ports",
    "join": "joins",
    "join_tables": "joins",
    "load_pipelines": "pipeline",
    "parquet": "ports",
    "spark": "session",
    "spark_table": "ports",
    "sql_table": "ports",
    "table_of": "ports",
    "topic": "ports",
    "view": "ports",
}

if not TYPE_CHECKING:  # mypy checks the names above instead

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        with extra_needed(f"ottla.pipelines.{name}", SPARK):
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
