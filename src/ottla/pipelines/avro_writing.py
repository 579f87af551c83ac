"""Rows as Avro payloads: a schema is compiled against the columns' types once, then each row takes one pass.

A column that no type of the schema takes is an error before the first row. A value that does not fit (a decimal with too
many digits, a symbol that the enum does not have) is an error that names its column. Columns that the schema does not have
are left out; fields without a column get their default, or null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ottla.model.user_error import UserError
from ottla.pipelines.avro_types import AvroTypes, Texts, avro_types, timestamp_unit

Write = Callable[[bytearray, Any], None]
"""Appends a value to a payload. Dates and times come as the integers of Arrow."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_EXACT = Context(prec=100, traps=[Inexact])
_SAME = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double"}
_LIMITS = {"int": 1 << 31, "long": 1 << 63}
_MICROS = 1_000_000
_NANOS_A_MILLI, _NANOS_A_MICRO = 1_000_000, 1_000


class NoEncoding(UserError):
    """A column whose type the schema does not take."""


@lru_cache(maxsize=100)
def avro_encoder(texts: Texts, columns: pa.DataType) -> Callable[[Any], bytes]:
    """`columns` is the type of a row, as Arrow has it."""
    types = avro_types(texts)
    write = _Compiler(types).writer(types.root, columns, "")

    def encode(row: Any) -> bytes:
        out = bytearray()
        write(out, row)
        return bytes(out)

    return encode


class _Compiler:
    def __init__(self, types: AvroTypes) -> None:
        self._types = types

    def writer(self, schema: Any, column: pa.DataType, path: str) -> Write:
        kind, definition = self._types.definition(schema)
        if kind == "union":
            return self._union(definition, column, path)
        if kind == "null":
            return _nothing
        if kind == "record" and pa.types.is_struct(column):
            return self._record(definition, column, path)
        if kind == "array" and pa.types.is_list(column):
            return self._array(definition["items"], column.value_type, path)
        if kind == "map" and pa.types.is_map(column):
            if not pa.types.is_string(column.key_type):
                raise NoEncoding(f"the column {path} has keys of type {column.key_type}; an Avro map has strings")
            return self._map(definition["values"], column.item_type, path)
        write = _simple(kind, definition, column)
        if write is None:
            raise NoEncoding(f"the column {path or 'row'} of type {column} is not an Avro {_name(kind, definition)}")
        return _checked(write, path)

    def _record(self, definition: Mapping[str, Any], column: pa.DataType, path: str) -> Write:
        parts: list[tuple[str, Write]] = []
        for field in definition["fields"]:
            name = field["name"]
            where = f"{path}.{name}" if path else name
            index = column.get_field_index(name)
            if index >= 0:
                parts.append((name, self.writer(field["type"], column.field(index).type, where)))
            elif "default" in field:
                parts.append((name, _constant(self._default(field["type"], field["default"]))))
            elif self._null_index(field["type"]) is not None:
                parts.append((name, self.writer(field["type"], pa.null(), where)))
            else:
                raise NoEncoding(f"there is no column {where}, and the field of the Avro schema has no default")

        def write(out: bytearray, row: Any) -> None:
            if row is None:
                raise UserError(f"the column {path or 'row'} is null, and its Avro type is not nullable")
            for name, part in parts:
                part(out, row.get(name))

        return write

    def _array(self, items: Any, column: pa.DataType, path: str) -> Write:
        item = self.writer(items, column, f"{path}[]")

        def write(out: bytearray, values: Any) -> None:
            if values:
                write_long(out, len(values))
                for value in values:
                    item(out, value)
            out.append(0)

        return _checked(write, path)

    def _map(self, values: Any, column: pa.DataType, path: str) -> Write:
        item = self.writer(values, column, f"{path}[]")

        def write(out: bytearray, pairs: Any) -> None:
            if pairs:
                write_long(out, len(pairs))
                for name, value in pairs:
                    _write_text(out, name)
                    item(out, value)
            out.append(0)

        return _checked(write, path)

    def _null_index(self, schema: Any) -> int | None:
        kind, branches = self._types.definition(schema)
        if kind != "union":
            return None
        return next((n for n, branch in enumerate(branches) if self._types.definition(branch)[0] == "null"), None)

    def _union(self, branches: list[Any], column: pa.DataType, path: str) -> Write:
        """The type of the column's own width, else the first that takes the column; a struct of member0, member1 ... names the type by its filled field."""
        null_at = self._null_index(branches)
        writers: dict[int, Write] = {}
        refusals: list[NoEncoding] = []
        for number, branch in enumerate(branches):
            if number == null_at:
                continue
            try:
                writers[number] = self.writer(branch, column, path)
            except NoEncoding as refusal:
                refusals.append(refusal)
        if not writers and len(refusals) > 1 and _members(column):
            return self._members(branches, column, null_at, path)
        if not writers and refusals and not pa.types.is_null(column):
            raise (
                refusals[0]
                if len(refusals) == 1
                else NoEncoding(f"the column {path} of type {column} is not a type of its union")
            )
        same = [number for number in writers if self._types.definition(branches[number])[0] == _SAME.get(column)]
        at = next(iter([*same, *writers]), 0)
        write_value = writers.get(at, _checked(_null_only, path))

        def write(out: bytearray, value: Any) -> None:
            if value is not None:
                write_long(out, at)
                write_value(out, value)
            elif null_at is None:
                raise UserError(f"the column {path} is null, and its Avro type is not nullable")
            else:
                write_long(out, null_at)

        return write

    def _members(self, branches: list[Any], column: pa.DataType, null_at: int | None, path: str) -> Write:
        numbers = [number for number in range(len(branches)) if number != null_at]
        writers = {
            field.name: (numbers[n], self.writer(branches[numbers[n]], field.type, f"{path}.{field.name}"))
            for field in column
            for n in [int(field.name.removeprefix("member"))]
            if n < len(numbers)
        }

        def write(out: bytearray, value: Any) -> None:
            filled = [name for name, inner in (value or {}).items() if inner is not None and name in writers]
            if len(filled) > 1 or (not filled and null_at is None):
                raise UserError(f"the column {path} has {len(filled)} filled fields; one type of its union is written")
            if not filled:
                write_long(out, null_at or 0)
                return
            at, part = writers[filled[0]]
            write_long(out, at)
            part(out, value[filled[0]])

        return write

    def _default(self, schema: Any, value: Any) -> bytes:
        """A default of the schema, which is JSON, as a payload."""
        out = bytearray()
        kind, definition = self._types.definition(schema)
        if kind == "union":
            number = (self._null_index(schema) if value is None else None) or 0
            write_long(out, number)
            out += self._default(definition[number], value)
        elif kind == "record":
            for field in definition["fields"]:
                out += self._default(field["type"], value.get(field["name"], field.get("default")))
        elif kind in {"array", "map"}:
            if value:
                write_long(out, len(value))
            for item in value:
                if kind == "map":
                    _write_text(out, item)
                out += self._default(
                    definition["values" if kind == "map" else "items"], value[item] if kind == "map" else item
                )
            out.append(0)
        elif kind in {"bytes", "fixed"}:
            raw = value.encode("latin-1")
            if kind == "bytes":
                write_long(out, len(raw))
            out += raw
        elif kind != "null":
            plain = {"boolean": pa.bool_(), "string": pa.string(), "enum": pa.string()}
            column = plain.get(kind, pa.float64() if kind in {"float", "double"} else pa.int64())
            write = _simple(kind, {name: entry for name, entry in definition.items() if name != "logicalType"}, column)
            if write is not None:
                write(out, value)
        return bytes(out)


def _members(column: pa.DataType) -> bool:
    names = [field.name for field in column] if pa.types.is_struct(column) else []
    return bool(names) and all(name.startswith("member") and name[6:].isdigit() for name in names)


def _name(kind: str, definition: Mapping[str, Any]) -> str:
    logical = definition.get("logicalType")
    return f"{kind} ({logical})" if logical else kind


def _constant(data: bytes) -> Write:
    def write(out: bytearray, _: Any) -> None:
        out.extend(data)

    return write


def _null_only(out: bytearray, value: Any) -> None:
    raise ValueError(f"{str(value)[:100]!r} instead of null, at byte {len(out)}")


def _nothing(out: bytearray, value: Any) -> None:
    pass


def _checked(write: Write, path: str) -> Write:
    def checked(out: bytearray, value: Any) -> None:
        if value is None:
            raise UserError(f"the column {path or 'row'} is null, and its Avro type is not nullable")
        try:
            write(out, value)
        except UserError:
            raise
        except (ValueError, OverflowError, ArithmeticError, struct.error) as problem:
            raise UserError(
                f"the column {path or 'row'} has a value that its Avro type does not take: {problem}"
            ) from problem

    return checked


def _simple(kind: str, definition: Mapping[str, Any], column: pa.DataType) -> Write | None:
    """The writer of a type without parts; None if the type does not take the column."""
    types = pa.types
    logical = definition.get("logicalType")
    if kind in {"int", "long"}:
        scaled = _time(kind, definition, column)
        return None if scaled is None else _integer(_LIMITS[kind], scaled)
    if kind == "boolean" and types.is_boolean(column):
        return lambda out, value: out.append(value)
    if kind in {"float", "double"} and (types.is_floating(column) or types.is_integer(column)):
        packed = _FLOAT if kind == "float" else _DOUBLE
        return lambda out, value: out.extend(packed.pack(value))
    if kind == "string" and types.is_string(column):
        return _write_text
    if kind == "enum" and types.is_string(column):
        return _symbol(definition)
    if logical == "decimal" and kind in {"bytes", "fixed"} and (types.is_decimal(column) or types.is_integer(column)):
        return _decimal(definition, definition["size"] if kind == "fixed" else None)
    if kind == "bytes" and types.is_binary(column):
        return _write_bytes
    if kind == "fixed" and types.is_binary(column):
        return _fixed(definition["size"])
    return None


def _time(kind: str, definition: Mapping[str, Any], column: pa.DataType) -> tuple[int, int] | None:
    """By what an integer of the column is multiplied and divided; None if the type does not take the column."""
    types = pa.types
    if types.is_integer(column):
        return 1, 1
    logical = definition.get("logicalType")
    if types.is_date32(column):
        return (1, 1) if kind == "int" and logical == "date" else None
    if types.is_time64(column):
        nanos = {("int", "time-millis"): _NANOS_A_MILLI, ("long", "time-micros"): _NANOS_A_MICRO}.get(
            (kind, str(logical))
        )
        return None if nanos is None else (1, nanos)
    family, units = timestamp_unit(kind, definition)
    if not types.is_timestamp(column) or not units or (family == "timestamp") != (column.tz is not None):
        return None
    return (units // _MICROS, 1) if units > _MICROS else (1, _MICROS // units)


def _integer(limit: int, scaled: tuple[int, int]) -> Write:
    factor, divisor = scaled

    def write(out: bytearray, value: int) -> None:
        number = value * factor // divisor
        if not -limit <= number < limit:
            raise ValueError(f"{number} is out of range")
        write_long(out, number)

    return write


def write_long(out: bytearray, number: int) -> None:
    raw = (number << 1) ^ (number >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def _write_bytes(out: bytearray, value: bytes) -> None:
    write_long(out, len(value))
    out += value


def _write_text(out: bytearray, value: str) -> None:
    _write_bytes(out, value.encode())


def _fixed(size: int) -> Write:
    def write(out: bytearray, value: bytes) -> None:
        if len(value) != size:
            raise ValueError(f"{len(value)} bytes instead of {size}")
        out += value

    return write


def _symbol(definition: Mapping[str, Any]) -> Write:
    numbers = {symbol: number for number, symbol in enumerate(definition["symbols"])}

    def write(out: bytearray, value: str) -> None:
        if value not in numbers:
            raise ValueError(f"the enum {definition['name']} has no symbol {value[:100]!r}")
        write_long(out, numbers[value])

    return write


def _decimal(definition: Mapping[str, Any], size: int | None) -> Write:
    scale, limit = definition.get("scale", 0), 10 ** definition["precision"]

    def write(out: bytearray, value: Decimal | int) -> None:
        scaled = Decimal(value).scaleb(scale, _EXACT)
        unscaled = int(scaled)
        if unscaled != scaled or not -limit < unscaled < limit:
            raise ValueError(
                f"{value} is not a decimal of {definition['precision']} digits, {scale} of them after the point"
            )
        length = (unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()) // 8 + 1
        if size is None:
            _write_bytes(out, unscaled.to_bytes(length, "big", signed=True))
        else:
            out += unscaled.to_bytes(size, "big", signed=True)

    return write
