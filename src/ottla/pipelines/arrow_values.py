"""Columns of bytes to columns of values and back, in Arrow batches. A bad value is the error of its own record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from ottla.model.user_error import UserError

_MOST_MESSAGE = 500
_REFUSED = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises for a value that is not of its type: a number that is too large, text that is not UTF-8."""


_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {"timestamp_utc": True}
)
"""PySpark 4.2 changed the name of the parameter."""


def arrow_type(kind: DataType) -> pa.DataType:
    """Spark's type in Arrow; timestamps have the zone UTC."""
    return to_arrow_type(kind, **_IN_UTC)


def batch_function(function: Callable[[pa.Array], pa.Array], result: DataType, source: Column) -> Column:
    """A column computed in Arrow batches. Spark 4.0 has no such functions: there each row is a batch."""
    arrow_udf = getattr(F, "arrow_udf", None)
    if arrow_udf is not None:
        column: Column = arrow_udf(_typed(function), result)(source)
        return column
    return F.udf(lambda value: function(_single_row(value)).to_pylist()[0], result)(source)


def _typed(function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Spark reads from the annotations that this is a function of arrays."""

    def over(column: pa.Array) -> pa.Array:
        return function(column)

    over.__annotations__ = {"column": pa.Array, "return": pa.Array}
    return over


def _single_row(value: Any) -> pa.Array:
    plain = value.asDict(recursive=True) if hasattr(value, "asDict") else value
    return pa.array([bytes(plain) if isinstance(plain, bytearray) else plain])


def decoded_values(data: pa.Array, read: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array:
    """Structs of `value` and `error`. UserErrors, which are not about a record, are raised."""
    values: list[Any] = []
    errors: list[str | None] = []
    for raw in data:
        value = error = None
        if raw.is_valid:
            try:
                value = read(raw.as_py())
            except UserError:
                raise
            except Exception as problem:  # noqa: BLE001 - a supervisor: every error is stored with its record
                error = error_text(problem)
        values.append(value)
        errors.append(error)
    try:
        column = pa.array(values, kind)
    except _REFUSED:
        for row, value in enumerate(values):
            try:
                pa.array([value], kind)
            except _REFUSED as problem:
                values[row], errors[row] = None, error_text(problem)
        column = pa.array(values, kind)
    return pa.StructArray.from_arrays([column, pa.array(errors, pa.string())], ["value", "error"])


def error_text(problem: BaseException) -> str:
    text = " ".join(str(problem).split())[:_MOST_MESSAGE].encode(errors="replace").decode()
    return f"{type(problem).__name__}: {text}"


def encoded_values(rows: pa.Array, write: Callable[[Any], bytes]) -> pa.Array:
    """The rows' bytes; dates and times come to `write` as the integers that Arrow holds."""
    plain = rows.cast(integers(rows.type))
    try:
        values = plain.to_pylist()
    except UnicodeDecodeError:
        values = [_row(plain, number) for number in range(len(plain))]
    return pa.array([None if value is None else write(value) for value in values], pa.binary())


def _row(rows: pa.StructArray, number: int) -> Any:
    """A row by its columns, to name the column whose text is not UTF-8."""
    row = {}
    for field in rows.type:
        try:
            row[field.name] = rows.field(field.name)[number].as_py()
        except UnicodeDecodeError as problem:
            raise UserError(f"the column {field.name} holds text that is not UTF-8: {problem}") from problem
    return row


def integers(kind: pa.DataType) -> pa.DataType:
    """The type with days, microseconds and nanoseconds as integers."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_time64(kind):
        return pa.int64()
    if types.is_date32(kind):
        return pa.int32()
    if types.is_struct(kind):
        return pa.struct([field.with_type(integers(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(integers(kind.key_type), integers(kind.item_type))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(integers(kind.value_type)))
    return kind
