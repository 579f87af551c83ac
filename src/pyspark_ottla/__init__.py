"""PySpark finds data sources in modules named `pyspark_*`: with Ottla installed, `format("ottla")` just works."""

from ottla.pipelines.datasource import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
