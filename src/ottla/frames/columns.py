"""Decoded records as columns of Arrow, a piece of the topic at a time.

Only the records of one piece are Python objects; all earlier pieces are Arrow's. A column gets a type that holds the values
of all its pieces: integers and floats become floats, and objects get the fields of all objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from ottla.model.user_error import UserError

PLACES = ("key", "partition", "offset", "timestamp")
"""The columns that every record has; a field of a value with such a name gets the prefix `value_`."""
_WIDER = {
    frozenset({pa.int64(), pa.float64()}): pa.float64(),
    frozenset({pa.string(), pa.binary()}): pa.binary(),
}
"""Types of two pieces of a column, and the type that holds the values of both."""
_DIGITS_OF_INT64 = pa.decimal128(19, 0)
_Piece: TypeAlias = "tuple[int, dict[str, pa.Array]]"
"""The number of records, and the columns that at least one of them has."""


class Columns:
    """`add` the pieces in the order of the records, then take the `table`. `schema` fixes the columns and their types."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema
        self._types: dict[str, pa.DataType] = {}
        self._pieces: list[_Piece] = []

    def add(self, places: Mapping[str, pa.Array], keys: Sequence[Any], values: Sequence[Any]) -> None:
        """`places` has the columns of PLACES but the keys, which are decoded as the values are."""
        fields = _fields(values)
        if self._schema is not None:
            self._pieces.append((len(values), _typed(self._schema, places, {"key": keys, **fields}, len(values))))
            return
        columns = {"key": _column("key", keys), **places}
        columns |= {name: _column(name, field) for name, field in fields.items()}
        for name, column in columns.items():
            try:
                self._types[name] = common_type(self._types.get(name, pa.null()), column.type)
            except TypeError as mixed:
                raise _refused(name, mixed) from mixed
        self._pieces.append((len(values), columns))

    def table(self) -> pa.Table:
        """Takes the pieces: call it once."""
        types = self._types if self._schema is None else {field.name: field.type for field in self._schema}
        if self._schema is None and not types:
            types = dict.fromkeys(PLACES, pa.null()) | EMPTY
        columns = {name: self._chunks(name, kind) for name, kind in types.items()}
        return pa.table(columns) if self._schema is None else pa.table(columns, schema=self._schema)

    def _chunks(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        try:
            chunks = [_as(columns.pop(name, None), kind, rows) for rows, columns in self._pieces]
        except pa.ArrowException as misfit:
            raise _refused(name, misfit) from misfit
        return pa.chunked_array(chunks, kind)


EMPTY = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("ms", tz="UTC")}
"""The types of the places in a table without records; keys have no type then."""


def common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """The type that holds the values of both types. TypeError if there is none."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        names = dict.fromkeys([field.name for field in (*first, *second)])
        return pa.struct([(name, common_type(_type_of(first, name), _type_of(second, name))) for name in names])
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(common_type(first.value_type, second.value_type))
    if pa.types.is_decimal(first) != pa.types.is_decimal(second):
        first, second = (_DIGITS_OF_INT64 if kind == pa.int64() else kind for kind in (first, second))
    if pa.types.is_decimal(first) and pa.types.is_decimal(second):
        scale = max(first.scale, second.scale)
        digits = max(first.precision - first.scale, second.precision - second.scale)
        return pa.decimal128(digits + scale, scale) if digits + scale <= 38 else pa.decimal256(digits + scale, scale)
    if frozenset({first, second}) not in _WIDER:
        raise TypeError(f"{first} and {second}")
    return _WIDER[frozenset({first, second})]


def _type_of(struct: pa.StructType, name: str) -> pa.DataType:
    index = struct.get_field_index(name)
    return pa.null() if index < 0 else struct.field(index).type


def _fields(values: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of values: the fields of objects, and `value` for every other value."""
    fields: dict[str, list[Any]] = {}
    for row, value in enumerate(values):
        for name, field in value.items() if isinstance(value, dict) else (("value", value),):
            column = fields.get(name)
            if column is None:
                if field is None and not isinstance(value, dict):
                    continue
                column = fields[name] = [None] * len(values)
            column[row] = field
    return {f"value_{name}" if name in PLACES else name: column for name, column in fields.items()}


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as mixed:
        raise _refused(name, mixed) from mixed


def _typed(
    schema: pa.Schema, places: Mapping[str, pa.Array], fields: Mapping[str, Sequence[Any]], rows: int
) -> dict[str, pa.Array]:
    columns = {}
    for field in schema:
        try:
            if field.name in places:
                columns[field.name] = places[field.name].cast(field.type)
            else:
                columns[field.name] = pa.array(fields.get(field.name, [None] * rows), field.type)
        except (pa.ArrowException, OverflowError) as misfit:
            raise UserError(f"the column {field.name!r} does not fit its type {field.type}: {misfit}") from misfit
    return columns


def _refused(name: str, reason: Exception) -> UserError:
    return UserError(
        f"the column {name!r} has values of several types, or out of range ({reason}): give ottla.read a "
        "schema=pyarrow.schema(...) without the column, or schema='raw' for bytes"
    )


def _as(column: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, kind)
    return column if column.type == kind else column.cast(kind)
