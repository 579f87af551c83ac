"""`format("ottla-delta")`, `format("ottla-iceberg")`, `format("ottla-files")` and `format("ottla-sql")` in any PySpark program.

    rows.write.format("ottla-delta").option("path", "s3://lake/orders").mode("append").save()

`format("ottla-sql")` reads tables, too. Each format is a module of this package with a function `make(options, *, overwrite) -> TableOutput`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from ottla.model.user_error import UserError
from ottla.pipelines.outputs.base import TableOutput
from ottla.pipelines.outputs.writer import TableStreamWriter, TableWriter, arrow_schema, output_options, work_of

if TYPE_CHECKING:
    from ottla.pipelines.sql_reader import SqlInput


class TableDataSource(DataSource):
    module: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return f"ottla-{cls.module}"

    def schema(self) -> str:
        raise UserError(
            f"{self.name()} writes tables and reads none: read them with a format of Spark, or ottla.pipelines"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        options = _lower(self.options)
        return TableWriter(self._output(options, overwrite=overwrite), arrow_schema(schema), work_of(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        options = _lower(self.options)
        if overwrite or options.get("keys"):
            raise UserError(
                f"a stream into {self.name()} appends rows: write in foreachBatch to replace or upsert them"
            )
        return TableStreamWriter(self._output(options, overwrite=False), arrow_schema(schema), options.get("txnappid"))

    def _output(self, options: Mapping[str, str], *, overwrite: bool) -> TableOutput:
        module = importlib.import_module(f"ottla.pipelines.outputs.{self.module}")
        output: TableOutput = module.make(output_options(options), overwrite=overwrite)
        return output


class DeltaDataSource(TableDataSource):
    module = "delta"


class IcebergDataSource(TableDataSource):
    module = "iceberg"


class FilesDataSource(TableDataSource):
    module = "files"


class SqlDataSource(TableDataSource):
    module = "sql"

    def schema(self) -> StructType:  # type: ignore[override]
        from ottla.pipelines.sql_reader import spark_schema

        return spark_schema(self._input().columns())

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        from ottla.pipelines.sql_reader import SqlReader

        source = self._input()
        return SqlReader(source, source.columns())

    def _input(self) -> SqlInput:
        from ottla.pipelines.outputs.sql import make_input

        return make_input(_lower(self.options))


FORMATS = (DeltaDataSource, IcebergDataSource, FilesDataSource, SqlDataSource)


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}
