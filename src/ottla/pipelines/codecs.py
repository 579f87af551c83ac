"""Values to columns and back: bytes, text, JSON and CSV by Spark itself, Avro and Protobuf by Python in Arrow batches.

Decoding gives two columns, `value` (a struct, or the bytes or text) and `error` (null when it could be read). A null
value, a tombstone, is no error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from ottla.client.errors import RegistryRefused
from ottla.client.schema_registry import latest_schema, register_schema, schema_texts
from ottla.model.user_error import UserError
from ottla.payloads.confluent import framed, indexes_prefix, message_indexes, unframed
from ottla.pipelines.arrow_values import arrow_type, batch_function, decoded_values, encoded_values
from ottla.pipelines.avro_reading import AvroDecoder
from ottla.pipelines.avro_types import Texts, avro_types, max_depth
from ottla.pipelines.avro_writing import avro_encoder
from ottla.pipelines.ports import Format

Result = TypeVar("Result")
Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]
_NOT_FOUND = 404
"""Confluent's codes 40401 to 40403 begin with it. A server that is no registry answers with a plain 404."""
_CORRUPT = "__corrupt"


def decoded(frame: DataFrame, form: Format, subject: str) -> DataFrame:
    """`frame` with `value` decoded and a column `error`."""
    raw = F.col("value")
    if form.kind == "bytes":
        return frame.withColumn("error", F.lit(None).cast("string"))
    if form.kind == "text":
        return _as_text(frame)
    if form.kind in {"json", "csv"}:
        return _by_spark(frame, form)
    read, schema = (_avro_reader if form.kind == "avro" else _protobuf_reader)(form, subject)
    result = StructType([StructField("value", schema), StructField("error", StringType())])

    def values(data: pa.Array) -> pa.Array:
        return decoded_values(data, read, arrow_type(schema))

    both = batch_function(values, result, raw)
    return frame.withColumn("__both", both).withColumn("value", F.col("__both.value")).withColumn(
        "error", F.col("__both.error")
    ).drop("__both")  # fmt: skip


def _as_text(frame: DataFrame) -> DataFrame:
    """Spark keeps bytes that are not UTF-8 in a string, and the next Python function fails at them."""
    text = F.col("value").cast("string")
    bad = F.col("value").isNotNull() & ~F.is_valid_utf8(text)
    return frame.withColumn("error", F.when(bad, F.lit("not UTF-8"))).withColumn("value", F.when(~bad, text))


def _by_spark(frame: DataFrame, form: Format) -> DataFrame:
    if form.schema is None:
        raise UserError(f"a {form.kind} value needs its schema, as in schema='id long, name string'")
    try:
        schema = StructType.fromDDL(form.schema)
    except (PySparkException, ValueError) as problem:
        raise UserError(f"the schema {form.schema!r} is not a list of columns and types: {problem}") from problem
    if not isinstance(schema, StructType):
        raise UserError(f"the schema {form.schema!r} is not a list of columns and types")
    full = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **form.options}
    text = F.col("value").cast("string")
    parsed = F.from_json(text, full, options) if form.kind == "json" else F.from_csv(text, _ddl(full), options)
    names = [F.col(f"__parsed.{column_name(field.name)}").alias(field.name) for field in schema.fields]
    corrupt = F.col("__parsed").isNull() | F.col(f"__parsed.{_CORRUPT}").isNotNull() | ~F.is_valid_utf8(text)
    bad = F.col("value").isNotNull() & corrupt
    begin = F.make_valid_utf8(F.substring(text, 1, 200))
    what = F.concat(F.lit(f"not {form.kind} of the schema {form.schema}: "), begin)
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


def encoded(frame: DataFrame, form: Format, subject: str, only: Column | None = None) -> Column:
    """The value column of an output, from all columns of `frame`; null for rows where `only` is false.

    Python encodes every row of a batch, also inside of a CASE: such rows are null before.
    """
    names = [name for name in frame.columns if not name.startswith("_")]
    if form.kind in {"bytes", "text"}:
        if "value" not in frame.columns:
            raise UserError(
                f"an output of {form.kind} needs a column named value; there are {', '.join(frame.columns)}"
            )
        return F.col("value").cast("binary")
    whole = F.struct(*[F.col(column_name(name)) for name in names])
    if only is not None:
        whole = F.when(only, whole)
    if form.kind == "json":
        return F.to_json(whole, {"ignoreNullFields": "false"}).cast("binary")
    if form.kind == "csv":
        return F.to_csv(whole).cast("binary")
    kind = arrow_type(frame.select(whole.alias("row")).schema["row"].dataType)
    write = (_avro_writer if form.kind == "avro" else _protobuf_writer)(form, subject, kind)
    return batch_function(lambda rows: encoded_values(rows, write), BinaryType(), whole)


def _avro_schema(form: Format, subject: str) -> Texts:
    if form.schema is not None:
        return (form.schema,)
    if form.registry is None:
        raise UserError("an avro value needs its schema or a registry")
    return schema_texts(form.registry, latest_schema(form.registry, form.subject or subject)[0])


def _avro_reader(form: Format, subject: str) -> tuple[Read, DataType]:
    texts, depth = _avro_schema(form, subject), max_depth(form.options)
    types = avro_types(texts, depth)
    registry = form.registry

    def read(data: bytes) -> Any:
        if registry is None:
            return _avro_values(texts, texts, depth, "").read(data)
        schema_id, payload = unframed(data)
        written = known_schema(schema_texts, registry, schema_id)
        return _avro_values(written, texts, depth, f"{schema_id} of {registry}").read(payload)

    return read, types.spark_type(types.root) or StructType([])


@lru_cache(maxsize=1000)
def _avro_values(writer: Texts, reader: Texts, depth: int, name: str) -> AvroDecoder:
    """Compiled once in a worker, and not sent to it: the schemas' texts are."""
    decoder = AvroDecoder(writer, reader, depth)
    warn_of_added(name, decoder.added)
    return decoder


def _avro_writer(form: Format, subject: str, columns: pa.DataType) -> Write:
    texts = _avro_schema(form, subject)
    avro_encoder(texts, columns)  # columns that do not fit are refused before the first row
    schema_id = None
    if form.registry is not None and form.schema is not None:
        schema_id = register_schema(form.registry, form.subject or subject, form.schema, "AVRO")
    elif form.registry is not None:
        schema_id = latest_schema(form.registry, form.subject or subject)[0]

    def write(row: dict[str, Any]) -> bytes:
        data = avro_encoder(texts, columns)(row)
        return data if schema_id is None else framed(schema_id, data)

    return write


def _protobuf_reader(form: Format, _subject: str) -> tuple[Read, DataType]:
    from ottla.pipelines.protobuf import MessageTypes, message_class, message_reader

    name, registry, options = form.schema or "", form.registry, tuple(sorted(form.options.items()))

    def read(data: bytes) -> Any:
        parse = message_reader(name, options)
        return parse(data if registry is None else _message(registry, name, data))

    return read, MessageTypes(form.options).message_type(message_class(name).DESCRIPTOR) or StructType([])


def _message(registry: str, name: str, data: bytes) -> bytes:
    """The message behind its framing; ValueError if the class cannot read the writer's message."""
    from ottla.pipelines.protobuf_schemas import written_message

    schema_id, payload = unframed(data)
    indexes, begin = message_indexes(payload)
    written = known_schema(written_message, registry, schema_id, indexes, name)
    if written.problem:
        raise ValueError(written.problem)
    warn_of_added(f"{schema_id} of {registry}", written.added)
    return payload[begin:]


def _protobuf_writer(form: Format, subject: str, columns: pa.DataType) -> Write:
    from ottla.pipelines.protobuf_schemas import message_indexes_of
    from ottla.pipelines.protobuf_writing import message_encoder

    name = form.schema or ""
    message_encoder(name, columns)
    prefix = b""
    if form.registry is not None:
        schema_id = latest_schema(form.registry, form.subject or subject)[0]
        prefix = framed(schema_id, indexes_prefix(message_indexes_of(form.registry, schema_id, name)))

    return lambda row: prefix + message_encoder(name, columns)(row)


def known_schema(look_up: Callable[..., Result], registry: str, schema_id: int, *more: Any) -> Result:
    """ValueError for a schema that the registry does not have, which is the record's error. A registry that does not
    answer, or refuses a login, is no error of a record: the step fails and tries again.
    """
    try:
        return look_up(registry, schema_id, *more)
    except RegistryRefused as refused:
        if refused.code // 100 != _NOT_FOUND:
            raise
        raise ValueError(f"the registry {registry} has no schema {schema_id}: {refused}") from refused


@lru_cache(maxsize=1000)
def _warn(name: str, fields: tuple[str, ...]) -> None:
    sys.stderr.write(
        f"ottla: WARNING: the schema {name} has fields that this run does not read: {', '.join(fields)}. Restart the "
        "pipeline to read them\n"
    )


def warn_of_added(name: str, fields: Iterable[str]) -> None:
    """Once in a worker for each schema: fields that a writer added after the start are left out until a restart."""
    if name and (added := tuple(fields)):
        _warn(name, added)
