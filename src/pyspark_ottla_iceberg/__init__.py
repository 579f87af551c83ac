"""PySpark finds data sources in modules named `pyspark_*`: with Ottla installed, `format("ottla-iceberg")` just works."""

from ottla.pipelines.outputs.sources import IcebergDataSource as DefaultSource

__all__ = ["DefaultSource"]
