"""Records of an output topic from the rows of a step: key, value, headers, and what identifies a row of a repeated batch.

With a quarantine, rows that failed an expectation are records of the quarantine topic, in the same transaction.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType, VariantType

from ottla.connect.sinks.base import DELETED
from ottla.model.user_error import UserError
from ottla.pipelines.checked_rows import is_good, quarantine_headers, row_as_json
from ottla.pipelines.codecs import column_name, encoded
from ottla.pipelines.content import IDENTITY
from ottla.pipelines.ports import Topic


def output_rows(frame: DataFrame, port: Topic, quarantine: str | None = None) -> DataFrame:
    """The records of an output topic. With a quarantine each row also has its `topic`."""
    value = encoded(frame, port.value, f"{port.name}-value", None if quarantine is None else is_good())
    if DELETED in frame.columns:
        value = F.when(F.coalesce(F.col(DELETED), F.lit(False)), F.lit(None).cast("binary")).otherwise(value)
    headers = F.col("_headers") if "_headers" in frame.columns else None
    columns = [] if port.key is None else [_key(frame, port).alias("key")]
    if quarantine is not None:
        value = F.when(is_good(), value).otherwise(_quarantined_value(frame, port))
        headers = F.when(is_good(), headers) if headers is not None else F.when(is_good(), None)
        headers = headers.otherwise(_all_headers(frame))
        columns.append(F.when(is_good(), F.lit(port.name)).otherwise(F.lit(quarantine)).alias("topic"))
    columns.append(value.alias("value"))
    if headers is not None:
        columns.append(headers.alias("headers"))
    return frame.select(*columns, *_identity(frame, port.key))


def quarantined_rows(frame: DataFrame, source_format: str) -> DataFrame:
    """The records of a quarantine topic whose step writes a table: the rows that failed."""
    rows = frame.where(~is_good())
    value, headers = row_as_json(rows).cast("binary").alias("value"), _all_headers(rows).alias("headers")
    return _for_format(rows.select(value, headers, *_identity(rows, None)), source_format)


def _key(frame: DataFrame, port: Topic) -> Column:
    key = str(port.key)
    if key not in frame.columns:
        raise UserError(f"the key {key!r} of {port.name} is not a column; there are {', '.join(frame.columns)}")
    column = F.col(column_name(key))
    return column if frame.schema[key].dataType.typeName() == "binary" else column.cast("string")


def _quarantined_value(frame: DataFrame, port: Topic) -> Column:
    """JSON, because a row that fails may not fit the output's schema. Bytes and text are their own form."""
    return F.col("value").cast("binary") if port.value.kind in {"bytes", "text"} else row_as_json(frame).cast("binary")


def _all_headers(frame: DataFrame) -> Column:
    added = quarantine_headers(frame)
    if "_headers" not in frame.columns:
        return added
    return F.when(F.col("_headers").isNull(), added).otherwise(F.concat("_headers", added))


def _identity(frame: DataFrame, key: str | None) -> list[Column]:
    """What identifies a row of a repeated batch, where its value does not (content.py).

    A repeated batch may add doubles in a different order, so that a value differs in its last bit.
    """
    fields = {field.name: field.dataType for field in frame.schema if not field.name.startswith("_")}
    stable = [F.col(column_name(name)) for name, kind in fields.items() if _is_stable(kind)]
    if len(stable) == len(fields):
        return []
    identity = F.xxhash64(*stable) if stable else F.lit(0)  # of no columns: only the number of rows is compared
    if key is not None and _is_stable(frame.schema[key].dataType):
        identity = F.when(F.col(column_name(key)).isNotNull(), F.xxhash64(column_name(key))).otherwise(identity)
    return [identity.cast("string").alias(IDENTITY)]


def _is_stable(kind: DataType) -> bool:
    """Whether values of the type can be hashed, and are the same in whatever order Spark adds numbers."""
    if isinstance(kind, StructType):
        return all(_is_stable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_stable(kind.elementType)
    return not isinstance(kind, FloatType | DoubleType | MapType | VariantType)


def topic_rows(frame: DataFrame, port: Topic, source_format: str, quarantine: str | None = None) -> DataFrame:
    return _for_format(output_rows(frame, port, quarantine), source_format)


def _for_format(rows: DataFrame, source_format: str) -> DataFrame:
    """Spark's own connector has no column for the identity."""
    return rows if source_format == "ottla" else rows.drop(IDENTITY)
