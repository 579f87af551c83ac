"""PySpark finds data sources in modules named `pyspark_*`: with Ottla installed, `format("ottla-files")` just works."""

from ottla.pipelines.outputs.sources import FilesDataSource as DefaultSource

__all__ = ["DefaultSource"]
