"""Joins with tables in a step's function: `join` (a stream with a table), `join_tables` (two tables).

A table is the stream of its changes: rows with `_key`, `_timestamp` and `_deleted`, as `changes_of(topic(...))` gives them
and as `join_tables` returns them. Both inputs are streaming inputs of one query, so Spark's offset log fixes a batch on
both sides. The tables are state by key (keyed_state.py). Both functions also work on plain DataFrames, in a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)
from pyspark.sql.utils import is_remote

from ottla.connect.sinks.base import DELETED
from ottla.model.user_error import UserError
from ottla.pipelines import keyed_state
from ottla.pipelines.carried import carried_processor
from ottla.pipelines.codecs import column_name

_PACKED = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Microseconds and zone: what is unpacked equals what was packed."""
_INTERVALS = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


def join(
    stream: DataFrame,
    table: DataFrame,
    *,
    on: str | Sequence[str],
    how: str = "inner",
    emit_on_table_change: bool = False,
) -> DataFrame:
    """Each row of `stream` with the row that `table` had for its key at the stream row's timestamp.

    `on` names the stream's column that holds the table's key; several columns match a view of several keys. The result
    has the stream's columns and the table's value columns. `how="left"` keeps stream rows without a row in the table.
    With `emit_on_table_change` a change of the table repeats the newest stream row of that key with the new table row.
    """
    _check_how(how, ("inner", "left"))
    keys = [on] if isinstance(on, str) else list(on)
    _check_columns("the stream", stream, [*keys, "_timestamp"])
    _check_columns("the table", table, ["_key", "_timestamp"])
    values = [name for name in _values(table) if name not in keys]
    _check_names(stream.columns, values)
    rows = _side(stream, _key_of(keys), keyed_state.STREAM, _packed(stream, stream.columns))
    rows = rows.unionByName(_table_side(table, keyed_state.TABLE, values))
    processor = keyed_state.StreamTableJoin(keep_unmatched=how == "left", emit_on_table_change=emit_on_table_change)
    joined = _with_state(rows, processor, keyed_state.STREAM_JOIN)
    return _with_columns(joined, (stream, stream.columns), (table, values))


def join_tables(
    left: DataFrame, right: DataFrame, *, how: str = "inner", foreign_key: str | Sequence[str] | None = None
) -> DataFrame:
    """The changes of a table that joins two tables by their keys, or by `foreign_key`, a column of `left`.

    The result has `_key` (of `left` for a foreign key), the value columns of both, `_timestamp` and `_deleted`. `how` is
    inner, left or outer; a join by a foreign key is inner or left.
    """
    _check_how(how, ("inner", "left") if foreign_key is not None else ("inner", "left", "outer"))
    for name, table in (("the left table", left), ("the right table", right)):
        _check_columns(name, table, ["_key", "_timestamp"])
    names = _values(left), _values(right)
    foreign = [] if foreign_key is None else [foreign_key] if isinstance(foreign_key, str) else list(foreign_key)
    _check_columns("the left table", left, foreign)
    names = names[0], [name for name in names[1] if name not in foreign]
    _check_names(*names)
    if foreign:
        joined = _by_foreign_key(left, right, names, foreign, keep_left=how == "left")
    else:
        rows = _table_side(left, keyed_state.LEFT, names[0]).unionByName(
            _table_side(right, keyed_state.RIGHT, names[1])
        )
        processor = keyed_state.TableTableJoin(keep_left=how in {"left", "outer"}, keep_right=how == "outer")
        joined = _with_state(rows, processor, keyed_state.TABLE_JOIN)
    facts = {
        "_key": F.col("key"),
        DELETED: F.col("deleted"),
        "_timestamp": F.timestamp_micros("at"),
        "_partition": F.col("part"),
        "_offset": F.col("offset"),
    }
    return _with_columns(joined, (left, names[0]), (right, names[1]), facts)


def _by_foreign_key(
    left: DataFrame, right: DataFrame, names: tuple[list[str], list[str]], foreign: list[str], *, keep_left: bool
) -> DataFrame:
    rows = _table_side(left, keyed_state.LEFT, names[0], _key_of(foreign))
    references = _with_state(rows, keyed_state.ForeignReferences(), keyed_state.SUBSCRIPTION)
    table = _table_side(right, keyed_state.TABLE, names[1]).withColumns(
        {"row_key": F.lit(None).cast("string"), "leaves": F.lit(False)}
    )
    matched = _with_state(
        references.unionByName(table), keyed_state.ForeignRows(keep_left=keep_left), keyed_state.TABLE_JOIN
    )
    return _with_state(matched, keyed_state.InRowOrder(), keyed_state.TABLE_JOIN)


def _with_state(rows: DataFrame, processor: StatefulProcessor, result: str) -> DataFrame:
    processor = carried_processor(processor) if is_remote() else processor
    return rows.groupBy("key").transformWithState(processor, result, "Append", "None")


def _table_side(table: DataFrame, side: int, values: list[str], row_key: Column | None = None) -> DataFrame:
    """A deletion has no payload."""
    payload = _packed(table, values)
    if DELETED in table.columns:
        payload = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), payload)
    return _side(table, F.col("_key"), side, payload, row_key).where("key is not null")


def _packed(frame: DataFrame, columns: list[str]) -> Column:
    _check_types(_schema(frame, columns))
    return F.to_json(F.struct(*map(column_name, columns)), _PACKED) if columns else F.lit("{}")


def _side(frame: DataFrame, key: Column, side: int, payload: Column, row_key: Column | None = None) -> DataFrame:
    """Rows as keyed_state.py takes them."""
    more = [] if row_key is None else [row_key.alias("row_key")]
    return frame.select(
        key.cast("string").alias("key"),
        F.lit(side).alias("side"),
        F.coalesce(F.unix_micros(F.col("_timestamp").cast("timestamp")), F.lit(0)).alias("at"),
        _number(frame, "_partition").cast("int").alias("part"),
        _number(frame, "_offset").cast("long").alias("offset"),
        payload.alias("payload"),
        *more,
    )


def _number(frame: DataFrame, name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0)) if name in frame.columns else F.lit(0)


def _key_of(columns: list[str]) -> Column:
    """One column as text, or several as the JSON that a view of several keys has for its records."""
    if len(columns) == 1:
        return F.col(column_name(columns[0])).cast("string")
    return F.to_json(F.struct(*map(column_name, columns)))


def _with_columns(
    joined: DataFrame,
    left: tuple[DataFrame, list[str]],
    right: tuple[DataFrame, list[str]],
    facts: Mapping[str, Column] | None = None,
) -> DataFrame:
    """The columns of both sides again, and `facts`."""
    sides, columns = [], []
    for name, (frame, names) in (("left", left), ("right", right)):
        sides.append(F.from_json(name, _schema(frame, names), {**_PACKED, "mode": "FAILFAST"}).alias(name))
        columns += [F.col(f"{name}.{column_name(column)}").alias(column) for column in names]
    named = [column.alias(name) for name, column in (facts or {}).items()]
    return joined.select(*named, *sides).select(*(facts or {}), *columns)


def _values(table: DataFrame) -> list[str]:
    return [name for name in table.columns if not name.startswith("_")]


def _schema(frame: DataFrame, columns: Sequence[str]) -> StructType:
    return StructType([StructField(name, frame.schema[name].dataType) for name in columns])


def _check_how(how: str, kinds: Sequence[str]) -> None:
    if how not in kinds:
        raise UserError(f"how={how!r} is not a kind of this join: use {' or '.join(kinds)}")


def _check_columns(side: str, frame: DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise UserError(
                f"{side} of the join has no column {name!r}, only {', '.join(frame.columns)}: keep that column in the "
                "select before the join"
            )


def _check_names(left: Sequence[str], right: Sequence[str]) -> None:
    both = sorted(set(left) & set(right))
    if both:
        raise UserError(f"both sides of the join have a column {both[0]!r}: rename that column on one side")


def _check_types(schema: StructType) -> None:
    for field in schema.fields:
        bad = _unpackable(field.dataType)
        if bad is not None:
            raise UserError(
                f"the column {field.name!r} of a join with a table has the type {bad.simpleString()}, which the state "
                "cannot keep: cast it, or leave it out"
            )


def _unpackable(kind: DataType) -> DataType | None:
    if isinstance(kind, _INTERVALS):
        return kind
    if isinstance(kind, MapType):
        return kind if not isinstance(kind.keyType, StringType) else _unpackable(kind.valueType)
    if isinstance(kind, ArrayType):
        return _unpackable(kind.elementType)
    if isinstance(kind, StructType):
        return next((bad for field in kind.fields if (bad := _unpackable(field.dataType))), None)
    return None
