"""Protobuf messages, named `module:Message` after the class that protoc generated, as rows."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)  # fmt: skip

from ottla.model.user_error import UserError
from ottla.payloads.confluent import message_indexes

_TYPES: dict[str, DataType] = {
    "TYPE_DOUBLE": DoubleType(), "TYPE_FLOAT": FloatType(), "TYPE_BOOL": BooleanType(), "TYPE_STRING": StringType(),
    "TYPE_BYTES": BinaryType(), "TYPE_ENUM": StringType(), "TYPE_INT32": IntegerType(), "TYPE_SINT32": IntegerType(),
    "TYPE_SFIXED32": IntegerType(),
}  # fmt: skip


@functools.lru_cache(maxsize=100)
def message_class(name: str) -> Any:
    module, _, message = name.partition(":")
    try:
        return getattr(importlib.import_module(module), message)
    except (ImportError, AttributeError, ValueError) as problem:
        raise UserError(
            f"a protobuf value's schema is MODULE:MESSAGE of a generated class, not {name!r}: {problem}"
        ) from problem


def message_type(descriptor: Any) -> StructType:
    return StructType([StructField(field.name, _field_type(field)) for field in descriptor.fields])


def _field_type(field: Any) -> DataType:
    kinds = {
        getattr(type(field), name, getattr(field, name, None)): name for name in dir(field) if name.startswith("TYPE_")
    }
    kind = kinds.get(field.type, "")
    if kind == "TYPE_MESSAGE":
        field_type: DataType = message_type(field.message_type)
    else:
        field_type = _TYPES.get(kind, LongType())
    return ArrayType(field_type) if field.is_repeated else field_type


@functools.lru_cache(maxsize=100)
def message_reader(name: str) -> Callable[..., Any]:
    kind = message_class(name)

    def read(data: bytes, *, framed: bool) -> dict[str, Any]:
        message = kind()
        message.ParseFromString(data[message_indexes(data)[1] :] if framed else data)
        return _row(message)

    return read


def _row(message: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None:
            row[field.name] = [_row(element) for element in value] if field.is_repeated else _row(value)
        elif field.enum_type is not None:
            names = field.enum_type.values_by_number
            row[field.name] = [names[element].name for element in value] if field.is_repeated else names[value].name
        else:
            row[field.name] = list(value) if field.is_repeated else value
    return row


@functools.lru_cache(maxsize=100)
def message_writer(name: str) -> Callable[[dict[str, Any]], bytes]:
    from google.protobuf.json_format import ParseDict

    kind = message_class(name)

    def write(row: dict[str, Any]) -> bytes:
        present = {field: value for field, value in row.items() if value is not None}
        data: bytes = ParseDict(present, kind(), ignore_unknown_fields=True).SerializeToString()
        return data

    return write
