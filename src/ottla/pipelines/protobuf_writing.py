"""Rows as Protobuf messages: a message's descriptor is compiled against the columns' types once, then each row takes one
pass. Columns without a field are left out, and a null leaves its field unset.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ottla.model.user_error import UserError
from ottla.pipelines.protobuf import DURATION, ENUM, JSON_TYPES, TIMESTAMP, WRAPPERS, is_map, message_class

_MICROS = 1_000_000
_FLOATS, _BOOL, _STRING, _BYTES = frozenset({1, 2}), 8, 9, 12
"""Numbers of descriptor.proto's FieldDescriptorProto.Type."""
Fill = Callable[[Any, Any], None]
"""Fills a message from a row, or sets a field of a message to a value."""


@functools.lru_cache(maxsize=100)
def message_encoder(name: str, columns: pa.DataType) -> Callable[[Any], bytes]:
    """`columns` is the type of a row, as Arrow has it."""
    kind = message_class(name)
    fill = _filler(kind.DESCRIPTOR, columns, "")

    def encode(row: Any) -> bytes:
        message = kind()
        fill(message, row)
        data: bytes = message.SerializeToString()
        return data

    return encode


def _filler(descriptor: Any, columns: pa.DataType, path: str) -> Fill:
    parts = []
    for column in columns:
        field = descriptor.fields_by_name.get(column.name)
        if field is not None:
            where = f"{path}.{column.name}" if path else column.name
            parts.append((column.name, field.containing_oneof, _checked(_setter(field, column.type, where), where)))

    def fill(message: Any, row: Any) -> None:
        filled: dict[str, str] = {}
        for name, oneof, part in parts:
            value = row.get(name)
            if value is None:
                continue
            if oneof is not None and filled.setdefault(oneof.name, name) != name:
                other = filled[oneof.name]
                raise UserError(f"the columns {other} and {name} are both filled: {oneof.full_name} is one of them")
            part(message, value)

    return fill


def _checked(fill: Fill, path: str) -> Fill:
    from google.protobuf.json_format import Error

    def checked(message: Any, value: Any) -> None:
        try:
            fill(message, value)
        except UserError:
            raise
        except (ValueError, TypeError, OverflowError, Error) as problem:
            reason = " ".join(str(problem).split())[:300]
            raise UserError(
                f"the column {path} has a value that its Protobuf field does not take: {reason}"
            ) from problem

    return checked


def _setter(field: Any, column: pa.DataType, path: str) -> Fill:
    name = field.name
    if is_map(field):
        return _map_setter(field, column, path)
    if field.message_type is not None:
        if not field.is_repeated:
            fill_one = _message_filler(field.message_type, column, path)

            def fill(message: Any, value: Any) -> None:
                inner = getattr(message, name)
                inner.SetInParent()
                fill_one(inner, value)

            return fill
        _require(field, column, path, fits=pa.types.is_list(column))
        item = _message_filler(field.message_type, column.value_type, path)

        def extend(message: Any, values: Any) -> None:
            for value in values:
                item(getattr(message, name).add(), value)

        return extend
    if field.is_repeated:
        _require(field, column, path, fits=pa.types.is_list(column))
        change = _scalar(field, column.value_type, path)
        return lambda message, values: getattr(message, name).extend(map(change, values))
    single = _scalar(field, column, path)
    return lambda message, value: setattr(message, name, single(value))


def _map_setter(field: Any, column: pa.DataType, path: str) -> Fill:
    _require(field, column, path, fits=pa.types.is_map(column))
    name, value_field = field.name, field.message_type.fields_by_name["value"]
    if value_field.message_type is not None:
        fill_one = _message_filler(value_field.message_type, column.item_type, path)

        def fill(message: Any, pairs: Any) -> None:
            for key, value in pairs:
                fill_one(getattr(message, name)[key], value)

        return fill
    change = _scalar(value_field, column.item_type, path)

    def set_all(message: Any, pairs: Any) -> None:
        entries = getattr(message, name)
        for key, value in pairs:
            entries[key] = change(value)

    return set_all


def _message_filler(descriptor: Any, column: pa.DataType, path: str) -> Fill:
    types = pa.types
    name = descriptor.full_name
    if name == TIMESTAMP and types.is_timestamp(column):
        return lambda message, micros: _set_time(message, micros // _MICROS, micros % _MICROS * 1000)
    if name == DURATION and types.is_duration(column):

        def fill_duration(message: Any, micros: int) -> None:
            sign = -1 if micros < 0 else 1
            _set_time(message, sign * (abs(micros) // _MICROS), sign * (abs(micros) % _MICROS) * 1000)

        return fill_duration
    if name in JSON_TYPES and types.is_string(column):
        from google.protobuf.json_format import Parse

        return lambda message, text: Parse(text, message)
    if name in WRAPPERS and not types.is_struct(column):
        change = _scalar(descriptor.fields_by_name["value"], column, path)
        return lambda message, value: setattr(message, "value", change(value))
    if not types.is_struct(column):
        raise UserError(f"the column {path} of type {column} is not a message {name}")
    return _filler(descriptor, column, path)


def _set_time(message: Any, seconds: int, nanos: int) -> None:
    message.seconds = seconds
    message.nanos = nanos


def _scalar(field: Any, column: pa.DataType, path: str) -> Callable[[Any], Any]:
    types = pa.types
    if field.type == ENUM:
        _require(field, column, path, fits=types.is_string(column) or types.is_integer(column))
        numbers = {value.name: value.number for value in field.enum_type.values}

        def number(value: Any) -> int:
            if isinstance(value, int) or value.lstrip("-").isdigit():
                return int(value)
            if value not in numbers:
                raise ValueError(f"the enum {field.enum_type.name} has no value {value[:100]!r}")
            return int(numbers[value])

        return number
    if field.type == _BOOL:
        _require(field, column, path, fits=types.is_boolean(column))
    elif field.type == _STRING:
        _require(field, column, path, fits=types.is_string(column))
    elif field.type == _BYTES:
        _require(field, column, path, fits=types.is_binary(column))
    elif field.type in _FLOATS:
        _require(field, column, path, fits=types.is_floating(column) or types.is_integer(column))
    else:
        whole = types.is_integer(column) or (types.is_decimal(column) and column.scale == 0)
        _require(field, column, path, fits=whole)
        return int
    return _same


def _same(value: Any) -> Any:
    return value


def _require(field: Any, column: pa.DataType, path: str, *, fits: bool) -> None:
    if not fits:
        raise UserError(f"the column {path} of type {column} does not fit the Protobuf field {field.full_name}")
