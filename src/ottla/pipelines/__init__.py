"""Data pipelines on Spark through PySpark: the data source `ottla`, pure functions between topics, and their runs."""

from ottla.pipelines.session import spark

__all__ = ["spark"]
