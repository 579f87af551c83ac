"""The sinks as connectors: Kafka Connect's settings in, one of the table sinks behind."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ottla.connect.config import flag, need, words
from ottla.connect.connector import Sink
from ottla.connect.locations import absolute
from ottla.connect.sinks.base import TableSink, Work
from ottla.model.user_error import UserError


class _TableSinkConnector(Sink):
    sink: TableSink

    def put(self, rows: pa.Table, work: Work) -> None:
        self.sink.put(rows, work)

    def reached(self, application: str) -> int | None:
        reached = getattr(self.sink, "reached", None)
        return reached(application) if reached is not None else None

    def close(self) -> None:
        self.sink.close()


class SqlSinkConnector(_TableSinkConnector):
    """connection.url, table.name.format, insert.mode, pk.fields, pk.mode, auto.create, auto.evolve, delete.enabled."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        from ottla.connect.databases import quoted, table_parts
        from ottla.connect.sinks.sql import SqlSink, connection_url

        table = config.get("table.name.format", "${topic}")
        if "${topic}" in table and len(words(config, "topics")) > 1:
            raise UserError(
                "one connector writes one table: name it with table.name.format, or give each topic its own"
            )
        if "${topic}" in table:  # a topic's dots are part of its name, those of the setting come behind a schema
            topic = need(config, "topics")
            table = ".".join(quoted(part.replace("${topic}", topic)) for part in table_parts(table))
        self.sink = SqlSink(
            connection_url(config),
            table,
            insert_mode=config.get("insert.mode", "insert"),
            pk_fields=words(config, "pk.fields"),
            auto_create=flag(config, "auto.create", default=True),
            auto_evolve=flag(config, "auto.evolve", default=False),
        )


class DeltaSinkConnector(_TableSinkConnector):
    """path, pk.fields (then it upserts), partition.by."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        from ottla.connect.sinks.delta import DeltaSink

        path, keys = absolute(need(config, "path")), words(config, "pk.fields")
        self.sink = DeltaSink(path, keys=keys, partition_by=words(config, "partition.by"))


class IcebergSinkConnector(_TableSinkConnector):
    """catalog.uri, warehouse, table (namespace.name): appends."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        from ottla.connect.sinks.iceberg import IcebergSink

        self.sink = IcebergSink(need(config, "catalog.uri"), absolute(need(config, "warehouse")), need(config, "table"))


class ParquetSinkConnector(_TableSinkConnector):
    """path (a folder or s3://bucket/path?endpoint=...), partition.by."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        from ottla.connect.sinks.parquet import ParquetSink

        self.sink = ParquetSink(absolute(need(config, "path")), partition_by=words(config, "partition.by"))
