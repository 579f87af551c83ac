"""`format("ottla")`: the options and columns of Spark's own Kafka source and sink, so that the two swap by one word."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.pipelines.options import read_options
from ottla.pipelines.reader import BatchReader, StreamReader
from ottla.pipelines.writer import BatchWriter, StreamWriter, write_options

_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
_HEADERS = ", headers array<struct<key: string, value: binary>>"


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return _COLUMNS + (_HEADERS if headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return BatchReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        return StreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002, FBT001 - Spark's
        return BatchWriter(write_options(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802 - Spark's
        return StreamWriter(write_options(self.options, schema))
