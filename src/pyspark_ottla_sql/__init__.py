"""PySpark finds data sources in modules named `pyspark_*`: with Ottla installed, `format("ottla-sql")` just works."""

from ottla.pipelines.outputs.sources import SqlDataSource as DefaultSource

__all__ = ["DefaultSource"]
