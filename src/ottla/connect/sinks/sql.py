"""SQL tables over ADBC: SQLite and PostgreSQL. The rows and the marker of the work are one database transaction.

Kafka Connect's JDBC names: insert.mode (insert, upsert), pk.fields, delete.enabled, auto.create. Names are quoted and
values are bound, never pasted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ottla.connect.sinks.base import Work, last_of_each, without_deleted
from ottla.tables.topics import TableError

PROGRESS = "ottla_progress"
_CREATE_PROGRESS = f"create table if not exists {PROGRESS} (application text primary key, version bigint not null)"
_PROGRESS_OF = f"select version from {PROGRESS} where application = {{}}"  # noqa: S608 - a constant name


def connect_sql(uri: str) -> tuple[Any, str]:
    """A DB-API connection and its dialect, for `sqlite:///FILE` and `postgresql://...`."""
    try:
        if uri.startswith("sqlite://"):
            from adbc_driver_sqlite import dbapi as sqlite

            return sqlite.connect(uri.removeprefix("sqlite:///") if uri.startswith("sqlite:///") else uri[9:]), "sqlite"
        if uri.startswith(("postgresql://", "postgres://")):
            from adbc_driver_postgresql import dbapi as postgresql

            return postgresql.connect(uri), "postgresql"
    except ImportError as missing:
        raise TableError(f"{missing.name} is missing: pip install 'ottla[spark]'") from missing
    except database_errors() as problem:
        raise TableError(
            f"the database {uri.rsplit('@', maxsplit=1)[-1]} cannot be opened: {first_line(problem)}"
        ) from problem
    raise TableError(f"connection.url is sqlite:///FILE or postgresql://USER@HOST/NAME, not {uri!r}")


def database_errors() -> tuple[type[Exception], ...]:
    from adbc_driver_manager import Error

    return (Error,)


def first_line(problem: Exception) -> str:
    return str(problem).splitlines()[0]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def sql_type(kind: pa.DataType, dialect: str) -> str:
    if pa.types.is_boolean(kind):
        return "boolean" if dialect == "postgresql" else "integer"
    if pa.types.is_integer(kind):
        return "bigint"
    if pa.types.is_floating(kind):
        return "double precision"
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if dialect == "postgresql" and kind.tz else "timestamp"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytea" if dialect == "postgresql" else "blob"
    return "text"


class SqlSink:
    def __init__(
        self,
        uri: str,
        table: str,
        *,
        insert_mode: str = "insert",
        pk_fields: Sequence[str] = (),
        auto_create: bool = True,
    ) -> None:
        if insert_mode not in {"insert", "upsert"}:
            raise TableError(f"insert.mode is insert or upsert, not {insert_mode!r}")
        if insert_mode == "upsert" and not pk_fields:
            raise TableError("insert.mode upsert needs pk.fields: the columns of the key")
        self._table = table
        self._mode = insert_mode
        self._keys = list(pk_fields)
        self._auto_create = auto_create
        self._connection, self._dialect = connect_sql(uri)

    def put(self, rows: pa.Table, work: Work) -> bool:
        rows = _plain(rows)
        try:
            with self._transaction() as cursor:
                self._prepare(cursor, without_deleted(rows)[0].schema)
                cursor.execute(_PROGRESS_OF.format(self._mark(1)), (work.application,))
                row = cursor.fetchone()
                if row is not None and row[0] >= work.version:
                    return False
                self._change(cursor, rows)
                cursor.executemany(
                    f"insert into {PROGRESS} (application, version) values ({self._mark(1)}, {self._mark(2)}) "  # noqa: S608 - a constant name
                    "on conflict (application) do update set version = excluded.version",
                    pa.table({"a": [work.application], "v": pa.array([work.version], pa.int64())}),
                )
        except database_errors() as problem:
            raise TableError(f"the table {self._table} was not written: {first_line(problem)}") from problem
        return True

    def reached(self, application: str) -> int | None:
        try:
            with self._transaction() as cursor:
                cursor.execute(_CREATE_PROGRESS)
                cursor.execute(_PROGRESS_OF.format(self._mark(1)), (application,))
                row = cursor.fetchone()
        except database_errors() as problem:
            raise TableError(f"the progress of {application} cannot be read: {first_line(problem)}") from problem
        return None if row is None else int(row[0])

    def close(self) -> None:
        self._connection.close()

    def _change(self, cursor: Any, rows: pa.Table) -> None:
        if self._keys:
            rows = last_of_each(rows, self._keys)
        kept, gone = without_deleted(rows)
        names = ", ".join(quoted(name) for name in kept.column_names)
        marks = ", ".join(self._mark(number + 1) for number in range(kept.num_columns))
        statement = f"insert into {quoted(self._table)} ({names}) values ({marks})"  # noqa: S608 - quoted names, bound values
        if self._mode == "upsert":
            rest = [name for name in kept.column_names if name not in self._keys]
            keys = ", ".join(map(quoted, self._keys))
            sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
            statement += f" on conflict ({keys}) do " + (f"update set {sets}" if sets else "nothing")
        if kept.num_rows:
            cursor.executemany(statement, kept)
        if gone.num_rows and self._keys:
            same = " and ".join(f"{quoted(key)} = {self._mark(number + 1)}" for number, key in enumerate(self._keys))
            cursor.executemany(f"delete from {quoted(self._table)} where {same}", gone.select(self._keys))  # noqa: S608 - as above

    def _prepare(self, cursor: Any, schema: pa.Schema) -> None:
        cursor.execute(_CREATE_PROGRESS)
        if self._auto_create:
            columns = [f"{quoted(field.name)} {sql_type(field.type, self._dialect)}" for field in schema]
            if self._keys:
                columns.append(f"primary key ({', '.join(map(quoted, self._keys))})")
            cursor.execute(f"create table if not exists {quoted(self._table)} ({', '.join(columns)})")

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            yield cursor
            self._connection.commit()
        except BaseException:  # whatever it is, the transaction must not stay open; it goes on up
            self._connection.rollback()
            raise
        finally:
            cursor.close()

    def _mark(self, number: int) -> str:
        return f"${number}" if self._dialect == "postgresql" else "?"


def _plain(rows: pa.Table) -> pa.Table:
    """Columns that databases take: nested ones become JSON text."""
    import json

    for index, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            texts = [
                None if value is None else json.dumps(value, default=str) for value in rows.column(index).to_pylist()
            ]
            rows = rows.set_column(index, field.name, pa.array(texts, pa.string()))
    return rows
