"""Rows of SQL databases over ADBC, with the modes of Kafka Connect's JDBC source: bulk, incrementing, timestamp.

An incrementing column gives new rows only, a timestamp column also changed ones (rows with equal times are kept apart by
the incrementing column where there is one). The place reached is the source offset; it is kept with the records.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ottla.connect.databases import Dialect, connect_sql, database_errors, quoted, quoted_table, reason_of
from ottla.model.user_error import UserError

MODES = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")


def read_table(uri: str, table: str) -> pa.Table:
    """All of a table."""
    connection, _ = connect_sql(uri)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"select * from {quoted_table(table)}")  # noqa: S608 - a quoted name
            return cursor.fetch_arrow_table()
    except database_errors() as problem:
        raise UserError(f"the table {table} cannot be read: {reason_of(problem)}") from problem
    finally:
        connection.close()


def read_after(
    uri: str,
    table: str,
    mode: str,
    *,
    incrementing: str | None = None,
    timestamp: str | None = None,
    after: dict[str, Any] | None = None,
    limit: int = 10_000,
) -> tuple[pa.Table, dict[str, Any]]:
    """The next rows behind `after`, and the place behind them."""
    if mode not in MODES:
        raise UserError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    if mode == "bulk":
        return read_table(uri, table), {}
    columns = [
        name for name, used in ((timestamp, "timestamp" in mode), (incrementing, "incrementing" in mode)) if used
    ]
    if None in columns:
        raise UserError(f"mode {mode} needs incrementing.column.name or timestamp.column.name")
    names = [str(name) for name in columns]
    connection, dialect = connect_sql(uri)
    try:
        with connection.cursor() as cursor:
            order = ", ".join(map(quoted, names))
            marks = _marks(cursor, table, names, dialect)
            where, values = _behind(names, after or {}, marks)
            statement = f"select * from {quoted_table(table)} {where} order by {order} limit {int(limit)}"  # noqa: S608 - quoted names, bound values
            cursor.execute(statement, values) if values else cursor.execute(statement)
            rows = cursor.fetch_arrow_table()
            if mode == "timestamp" and rows.num_rows == limit:
                rows = _whole_times(cursor, table, names[0], rows, marks[0])
    except database_errors() as problem:
        raise UserError(f"the table {table} cannot be read: {reason_of(problem)}") from problem
    finally:
        connection.close()
    if rows.num_rows == 0:
        return rows, dict(after or {})
    last = rows.slice(rows.num_rows - 1).to_pylist()[0]
    return rows, {name: _plain(last[name]) for name in names}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else str(value)


def _whole_times(cursor: Any, table: str, column: str, rows: pa.Table, mark: str) -> pa.Table:
    """The limit may have cut through rows of one time, and what is behind that time would never be asked for: all of them."""
    last = rows.column(column)[-1].as_py()
    before = sum(1 for value in rows.column(column).to_pylist() if value != last)
    value = _plain(last) if mark == "?" else str(last)
    cursor.execute(f"select * from {quoted_table(table)} where {quoted(column)} = {mark}", (value,))  # noqa: S608 - quoted names, bound values
    return pa.concat_tables([rows.slice(0, before), cursor.fetch_arrow_table()], promote_options="permissive")


def _marks(cursor: Any, table: str, names: list[str], dialect: Dialect) -> list[str]:
    """What stands for each value. PostgreSQL compares no time with the text that a place is kept as: it is cast there."""
    if not dialect.type_of:
        return [dialect.bound(number + 1) for number in range(len(names))]
    casts = []
    for number, name in enumerate(names):
        cursor.execute(dialect.type_of, (quoted_table(table), name))
        row = cursor.fetchone()
        if row is None:
            raise UserError(f"the table {table} has no column {name}")
        casts.append(f"cast(cast({dialect.bound(number + 1)} as text) as {row[0]})")
    return casts


def _behind(names: list[str], after: dict[str, Any], marks: list[str]) -> tuple[str, tuple[Any, ...]]:
    """Rows after a place, in the order of the columns: (a, b) > (x, y). A row without a place is left out, as in JDBC's."""
    if not all(name in after for name in names):
        return "where " + " and ".join(f"{quoted(name)} is not null" for name in names), ()
    cast = marks[0] != "?"
    values = tuple(str(after[name]) if cast else after[name] for name in names)
    return f"where ({', '.join(map(quoted, names))}) > ({', '.join(marks)})", values
