"""PySpark finds data sources in modules named `pyspark_*`: with Ottla installed, `format("ottla-delta")` just works."""

from ottla.pipelines.outputs.sources import DeltaDataSource as DefaultSource

__all__ = ["DefaultSource"]
