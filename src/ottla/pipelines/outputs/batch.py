"""One micro-batch of a step into a table: Spark's tasks write, and no row comes to the driver."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.connect.locations import absolute
from ottla.connect.sinks.base import DELETED, Work
from ottla.model.user_error import UserError
from ottla.pipelines.codecs import column_name
from ottla.pipelines.outputs.evolution import EVOLVE
from ottla.pipelines.outputs.spark_merge import merge_in_spark, merge_target
from ottla.pipelines.ports import Delta, Files, Iceberg, Port, SparkTable, SqlTable

_NO_KEYS = ("map", "variant")
_ROW, _NEWEST = "__ottla_row", "__ottla_newest"


def write_table(frame: DataFrame, port: Port, work: Work, *, overwrite: bool) -> None:
    """Rows and marker in one commit; a batch that is there already changes nothing."""
    rows = table_columns(frame)
    if isinstance(port, SparkTable):  # a foreign format knows none of our options but Delta's two
        write_format(rows, port.format, port.options, replace(work, note={}), overwrite=overwrite)
        return
    name, options = table_format(port)
    keys = json.loads(options.get("keys", "[]"))
    if keys and not overwrite and not isinstance(port, SqlTable):  # a database merges what all tasks staged
        rows = newest_of_each(rows, keys, port.node)
        target = merge_target(frame.sparkSession, port) if isinstance(port, Delta | Iceberg) else None
        if target is not None:
            merge_in_spark(rows, target, work)
            return
        rows = rows.coalesce(1)
    write_format(rows, name, options, work, overwrite=overwrite)


def check_table(frame: DataFrame, port: Port, *, overwrite: bool) -> None:
    """UserError for rows that no table of this kind can hold; nothing is opened."""
    from ottla.pipelines.outputs.sources import FORMATS
    from ottla.pipelines.outputs.writer import arrow_schema, output_options

    rows = table_columns(frame)
    name, options = table_format(port)
    for key in json.loads(options.get("keys", "[]")):
        kind = rows.schema[key].dataType.typeName()
        if kind in _NO_KEYS:
            raise UserError(f"the key {key!r} of {port.node} is {kind}, which no table can look up: use another column")
    lower = output_options({option.lower(): value for option, value in options.items()})
    module = next(source for source in FORMATS if source.name() == name).module
    output = importlib.import_module(f"ottla.pipelines.outputs.{module}").make(lower, overwrite=overwrite)
    schema = arrow_schema(rows.schema)
    for column in schema:
        if pa.types.is_null(column.type):
            raise UserError(f"the column {column.name!r} has no type, only null: cast it, such as cast(null as string)")
    if isinstance(port, Delta | Files) and set(port.partition_by) >= set(schema.names) - {DELETED}:
        raise UserError(f"{port.node} needs a column beside those of partition_by")
    if isinstance(port, Files | SqlTable):
        output.check(schema)


def write_format(
    rows: DataFrame, name: str, options: Mapping[str, str], work: Work, *, overwrite: bool = False
) -> None:
    (
        rows.write.format(name)
        .options(**options, **{f"note.{key}": value for key, value in work.note.items()})
        .option("txnAppId", work.application)
        .option("txnVersion", str(work.version))
        .mode("overwrite" if overwrite else "append")
        .save()
    )


def table_format(port: Port) -> tuple[str, dict[str, str]]:
    """The data source of a port, and its options."""
    name, options = _table_format(port)
    return name, options | ({EVOLVE: "true"} if getattr(port, EVOLVE, False) else {})


def _table_format(port: Port) -> tuple[str, dict[str, str]]:
    if isinstance(port, Delta):
        return "ottla-delta", {"path": absolute(port.path), **_columns(keys=port.keys, partitionBy=port.partition_by)}
    if isinstance(port, Files):
        return "ottla-files", {
            "path": absolute(port.path),
            "format": port.format,
            **_columns(partitionBy=port.partition_by),
        }
    if isinstance(port, Iceberg):
        properties = {f"catalog.{name}": value for name, value in port.catalog.items()}
        columns = _columns(keys=port.keys, partitionBy=port.partition_by)
        return "ottla-iceberg", {"table": port.table, **properties, **columns}
    if isinstance(port, SqlTable):
        staging = {"stagingSchema": port.staging_schema} if port.staging_schema else {}
        return "ottla-sql", {"url": port.uri, "dbtable": port.table, **staging, **_columns(keys=port.keys)}
    raise UserError(f"{port.node} cannot be written by a step")


def _columns(**names: Sequence[str]) -> dict[str, str]:
    return {option: json.dumps(list(columns)) for option, columns in names.items() if columns}


def table_columns(frame: DataFrame) -> DataFrame:
    kept = [name for name in frame.columns if not name.startswith("_") or name == DELETED]
    return frame.select(*[F.col(column_name(name)) for name in kept])


def newest_of_each(frame: DataFrame, keys: Sequence[str], node: str) -> DataFrame:
    """The last row of each key, in the order of the frame's partitions and of the rows in them."""
    missing = [name for name in keys if name not in frame.columns]
    if missing:
        raise UserError(f"the key {missing[0]!r} of {node} is not a column of {', '.join(frame.columns)}")
    columns: list[Column] = [F.col(column_name(name)) for name in frame.columns]
    newest = (
        frame.withColumn(_ROW, F.monotonically_increasing_id())
        .groupBy(*[F.col(column_name(name)).alias(f"{_NEWEST}_{number}") for number, name in enumerate(keys)])
        .agg(F.max_by(F.struct(*columns), F.col(_ROW)).alias(_NEWEST))
    )
    return newest.select(F.col(f"{_NEWEST}.*"))
