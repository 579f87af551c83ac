"""Protobuf messages, named `module:Message` after the class that protoc generated, as rows.

The types are those of Spark's own from_protobuf, with its options: a Timestamp is a timestamp, a Duration an interval, an
enum its name. Beyond it, a wrapper (Int64Value ...) is its value and a Struct, Value or ListValue is JSON text. A field with
presence (a message, a member of a oneof, `optional`) is null when it is not set.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)  # fmt: skip

from ottla.model.user_error import UserError

MAX_DEPTH_OPTION = "recursive.fields.max.depth"
UNSIGNED_OPTION = "upcast.unsigned.ints"
_MOST_DEPTH = 10
_MICROS = 1_000_000
_LONG = 1 << 63
SCALARS: dict[int, DataType] = {
    1: DoubleType(), 2: FloatType(), 3: LongType(), 4: LongType(), 5: IntegerType(), 6: LongType(), 7: LongType(),
    8: BooleanType(), 9: StringType(), 12: BinaryType(), 13: LongType(), 14: StringType(), 15: IntegerType(),
    16: LongType(), 17: IntegerType(), 18: LongType(),
}  # fmt: skip
"""By the numbers of descriptor.proto's FieldDescriptorProto.Type."""
UINT64, FIXED64, ENUM = 4, 6, 14
JSON_TYPES = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
Read = Callable[[Any], Any]


@functools.lru_cache(maxsize=100)
def message_class(name: str) -> Any:
    module, _, message = name.partition(":")
    try:
        generated: Any = importlib.import_module(module)
        for part in message.split("."):
            generated = getattr(generated, part)
    except (ImportError, AttributeError, ValueError) as problem:
        raise UserError(
            f"a protobuf value's schema is MODULE:MESSAGE of a generated class, not {name!r}: {problem}"
        ) from problem
    return generated


class MessageTypes:
    """Spark types and readers of messages. A field that is dropped because it lies too deep has the type None."""

    def __init__(self, options: Mapping[str, str]) -> None:
        depth = options.get(MAX_DEPTH_OPTION, "-1")
        if not depth.lstrip("-").isdigit() or int(depth) > _MOST_DEPTH:
            raise UserError(f"{MAX_DEPTH_OPTION} is a number up to {_MOST_DEPTH}, not {depth!r}")
        self._depth = int(depth)
        self._unsigned = options.get(UNSIGNED_OPTION, "false").lower() == "true"

    def message_type(self, descriptor: Any, seen: Mapping[str, int] | None = None) -> StructType | None:
        within = self._inside(descriptor, seen or {})
        if within is None:
            return None
        fields = [(field.name, self.field_type(field, within)) for field in descriptor.fields]
        return StructType([StructField(name, kind) for name, kind in fields if kind is not None])

    def field_type(self, field: Any, seen: Mapping[str, int]) -> DataType | None:
        if is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            value_type = self._one_type(value, seen)
            return None if value_type is None else MapType(self._one_type(key, seen) or StringType(), value_type)
        kind = self._one_type(field, seen)
        return ArrayType(kind) if field.is_repeated and kind is not None else kind

    def _one_type(self, field: Any, seen: Mapping[str, int]) -> DataType | None:
        message = field.message_type
        if message is None:
            if self._unsigned and field.type in {UINT64, FIXED64}:
                return DecimalType(20, 0)
            return SCALARS[field.type]
        if message.full_name == TIMESTAMP:
            return TimestampType()
        if message.full_name == DURATION:
            return DayTimeIntervalType()
        if message.full_name in JSON_TYPES:
            return StringType()
        if message.full_name in WRAPPERS:
            return self._one_type(message.fields_by_name["value"], seen)
        inner = self.message_type(message, seen)
        return inner if inner is None or inner.fields else None  # an empty message has no columns, as in Spark

    def _inside(self, descriptor: Any, seen: Mapping[str, int]) -> Mapping[str, int] | None:
        name = descriptor.full_name
        times = seen.get(name, 0)
        if times and self._depth < 1:
            raise UserError(
                f"the message {name} contains itself: set the option {MAX_DEPTH_OPTION} of its Format to the number of "
                f"levels to read (1 to {_MOST_DEPTH})"
            )
        return None if times and times >= self._depth else {**seen, name: times + 1}

    def reader(self, descriptor: Any, seen: Mapping[str, int] | None = None) -> Read:
        """A message as a dict of the values that Arrow takes."""
        within = self._inside(descriptor, seen or {}) or {}
        parts = [
            (field.name, field.has_presence, self._field_reader(field, within))
            for field in descriptor.fields
            if self.field_type(field, within) is not None
        ]

        def read(message: Any) -> dict[str, Any]:
            return {
                name: None if presence and not message.HasField(name) else part(getattr(message, name))
                for name, presence, part in parts
            }

        return read

    def _field_reader(self, field: Any, seen: Mapping[str, int]) -> Read:
        if is_map(field):
            value = self._value_reader(field.message_type.fields_by_name["value"], seen)
            return lambda entries: [(key, value(entries[key])) for key in entries]
        read = self._value_reader(field, seen)
        return (lambda values: [read(value) for value in values]) if field.is_repeated else read

    def _value_reader(self, field: Any, seen: Mapping[str, int]) -> Read:
        message = field.message_type
        if message is None:
            if field.type == ENUM:
                names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
                return lambda number: names.get(number) or str(number)
            return Decimal if self._unsigned and field.type in {UINT64, FIXED64} else _same
        if message.full_name in {TIMESTAMP, DURATION}:
            return lambda value: value.seconds * _MICROS + _micros(value)
        if message.full_name in JSON_TYPES:
            return _json_text
        if message.full_name in WRAPPERS:
            inner = self._value_reader(message.fields_by_name["value"], seen)
            return lambda value: inner(value.value)
        return self.reader(message, seen)


def is_map(field: Any) -> bool:
    message = field.message_type
    return bool(field.is_repeated and message is not None and message.GetOptions().map_entry)


def _same(value: Any) -> Any:
    return value


def _micros(value: Any) -> int:
    """Nanoseconds are cut towards minus infinity; a Duration's have the sign of its seconds."""
    return int(value.nanos // 1000)


def _json_text(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None, ensure_ascii=False))


@functools.lru_cache(maxsize=100)
def message_reader(name: str, options: tuple[tuple[str, str], ...]) -> Callable[[bytes], Any]:
    kind = message_class(name)
    read = MessageTypes(dict(options)).reader(kind.DESCRIPTOR)

    def parse(data: bytes) -> Any:
        message = kind()
        message.ParseFromString(data)
        return read(message)

    return parse
