"""Values to columns and back: bytes, text, JSON and CSV by Spark itself, Avro and Protobuf by Python in Arrow batches.

Decoding gives two columns, `value` (a struct, or the bytes or text) and `error` (null when it could be read). A null
value, a tombstone, is no error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)  # fmt: skip

from ottla.client.schema_registry import latest_schema, register_schema, schema_by_id
from ottla.model.user_error import UserError
from ottla.payloads.avro import AvroReader, parse_avro
from ottla.payloads.confluent import FIRST_MESSAGE, framed, unframed
from ottla.pipelines.ports import Format

_CORRUPT = "__corrupt"
_AVRO: dict[str, DataType] = {
    "null": StringType(), "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "bytes": BinaryType(), "string": StringType(), "enum": StringType(), "fixed": BinaryType(),
}  # fmt: skip


def decoded(frame: DataFrame, form: Format, subject: str) -> DataFrame:
    """`frame` with `value` decoded and a column `error`."""
    raw = F.col("value")
    if form.kind in {"bytes", "text"}:
        value = raw if form.kind == "bytes" else raw.cast("string")
        return frame.withColumn("value", value).withColumn("error", F.lit(None).cast("string"))
    if form.kind in {"json", "csv"}:
        return _by_spark(frame, form)
    read, schema = (_avro_reader if form.kind == "avro" else _protobuf_reader)(form, subject)
    result = StructType([StructField("value", schema), StructField("error", StringType())])

    def value_or_error(data: bytes | None) -> tuple[Any, str | None]:
        if data is None:
            return None, None
        try:
            return read(bytes(data)), None
        except Exception as problem:  # noqa: BLE001 - a supervisor: every error is stored with its record
            return None, f"{type(problem).__name__}: {problem}"

    both = F.udf(value_or_error, result)(raw)
    return frame.withColumn("__both", both).withColumn("value", F.col("__both.value")).withColumn(
        "error", F.col("__both.error")
    ).drop("__both")  # fmt: skip


def _by_spark(frame: DataFrame, form: Format) -> DataFrame:
    if form.schema is None:
        raise UserError(f"a {form.kind} value needs its schema, as in schema='id long, name string'")
    try:
        schema = StructType.fromDDL(form.schema)
    except (PySparkException, ValueError) as problem:
        raise UserError(f"the schema {form.schema!r} is no list of columns and types: {problem}") from problem
    if not isinstance(schema, StructType):
        raise UserError(f"the schema {form.schema!r} is no list of columns and types")
    full = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **form.options}
    text = F.col("value").cast("string")
    parsed = F.from_json(text, full, options) if form.kind == "json" else F.from_csv(text, _ddl(full), options)
    names = [F.col(f"__parsed.{column_name(field.name)}").alias(field.name) for field in schema.fields]
    bad = F.col("value").isNotNull() & (F.col("__parsed").isNull() | F.col(f"__parsed.{_CORRUPT}").isNotNull())
    what = F.concat(F.lit(f"not {form.kind} of the schema {form.schema}: "), F.substring(text, 1, 200))
    value = F.when(F.col("__value").isNotNull() & F.col("error").isNull(), F.struct(*names))
    return (
        frame.withColumn("__parsed", parsed)
        .withColumn("error", F.when(bad, what))
        .withColumnRenamed("value", "__value")
        .withColumn("value", value)
        .drop("__parsed", "__value")
    )


def column_name(name: str) -> str:
    """A column by its name, also with dots, spaces and backticks in it."""
    return "`" + name.replace("`", "``") + "`"


def _ddl(schema: StructType) -> str:
    """from_csv takes its schema as text."""
    return ", ".join(f"{column_name(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def encoded(frame: DataFrame, form: Format, subject: str) -> Column:
    """The value column of an output, from all columns of `frame`."""
    names = [name for name in frame.columns if not name.startswith("_")]
    if form.kind in {"bytes", "text"}:
        if "value" not in frame.columns:
            raise UserError(
                f"an output of {form.kind} needs a column named value; there are {', '.join(frame.columns)}"
            )
        return F.col("value").cast("binary")
    whole = F.struct(*[F.col(column_name(name)) for name in names])
    if form.kind == "json":
        return F.to_json(whole, {"ignoreNullFields": "false"}).cast("binary")
    if form.kind == "csv":
        return F.to_csv(whole).cast("binary")
    write = (_avro_writer if form.kind == "avro" else _protobuf_writer)(form, subject)
    return F.udf(lambda row: write(row.asDict(recursive=True)), BinaryType())(whole)


def avro_to_spark(schema: Any) -> DataType:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise UserError(f"an Avro union of {len(branches)} types has no Spark type: {json.dumps(schema)}")
        return avro_to_spark(branches[0])
    if isinstance(schema, str):
        if schema not in _AVRO:
            raise UserError(f"the Avro type {schema!r} has no Spark type")
        return _AVRO[schema]
    kind = schema["type"]
    if kind == "record":
        return StructType([StructField(field["name"], avro_to_spark(field["type"])) for field in schema["fields"]])
    if kind == "array":
        return ArrayType(avro_to_spark(schema["items"]))
    if kind == "map":
        return MapType(StringType(), avro_to_spark(schema["values"]))
    return avro_to_spark(kind)


def _avro_schema(form: Format, subject: str) -> str:
    if form.schema is not None:
        return form.schema
    if form.registry is None:
        raise UserError("an avro value needs its schema or a registry")
    return latest_schema(form.registry, form.subject or subject)[1]


def _avro_reader(form: Format, subject: str) -> tuple[Callable[[bytes], Any], DataType]:
    text = _avro_schema(form, subject)
    registry = form.registry

    def read(data: bytes) -> Any:
        if registry is None:
            return _avro_values(text, None).read(data)
        schema_id, payload = unframed(data)
        return _avro_values(schema_by_id(registry, schema_id), text).read(payload)

    return read, avro_to_spark(json.loads(text))


@lru_cache(maxsize=1000)
def _avro_values(theirs: str, ours: str | None) -> AvroReader:
    """Compiled once in a worker, and not sent to it: the schemas' texts are."""
    return AvroReader(json.loads(theirs), reader=None if ours is None else json.loads(ours))


def _avro_writer(form: Format, subject: str) -> Callable[[dict[str, Any]], bytes]:
    text = _avro_schema(form, subject)
    schema_id = register_schema(form.registry, form.subject or subject, text, "AVRO") if form.registry else None

    def write(row: dict[str, Any]) -> bytes:
        import fastavro

        out = io.BytesIO()
        fastavro.schemaless_writer(out, parse_avro(json.loads(text)), row)
        return out.getvalue() if schema_id is None else framed(schema_id, out.getvalue())

    return write


def _protobuf_reader(form: Format, _subject: str) -> tuple[Callable[[bytes], Any], DataType]:
    from ottla.pipelines.protobuf import message_class, message_reader, message_type

    name, with_id = form.schema or "", form.registry is not None

    def read(data: bytes) -> Any:
        return message_reader(name)(unframed(data)[1] if with_id else data, framed=with_id)

    return read, message_type(message_class(name).DESCRIPTOR)


def _protobuf_writer(form: Format, subject: str) -> Callable[[dict[str, Any]], bytes]:
    from ottla.pipelines.protobuf import message_writer

    name = form.schema or ""
    schema_id = latest_schema(form.registry, form.subject or subject)[0] if form.registry else None

    def write(row: dict[str, Any]) -> bytes:
        data = message_writer(name)(row)
        return data if schema_id is None else framed(schema_id, FIRST_MESSAGE + data)

    return write
