"""SQL tables over ADBC: SQLite and PostgreSQL. The rows and the marker of the work are one database transaction.

Kafka Connect's JDBC names: insert.mode (insert, upsert), pk.fields, delete.enabled, auto.create, auto.evolve. Names are
quoted and values are bound, never pasted. A table's name may include its schema, SCHEMA.TABLE; a name that contains a
dot stands in double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ottla.connect.config import need
from ottla.connect.sinks.base import Work, last_of_each, without_deleted
from ottla.model.user_error import UserError

PROGRESS = "ottla_progress"
_CREATE_PROGRESS = f"create table if not exists {PROGRESS} (application text primary key, version bigint not null)"
_PROGRESS_OF = f"select version from {PROGRESS} where application = {{}}"  # noqa: S608 - a constant name


def connection_url(config: Mapping[str, str]) -> str:
    """`connection.url`, JDBC's too (jdbc:sqlite:FILE), with `connection.user` and `connection.password`."""
    url = need(config, "connection.url").removeprefix("jdbc:")
    if url.startswith("sqlite:") and not url.startswith("sqlite://"):
        url = f"sqlite:///{url.removeprefix('sqlite:')}"
    user = config.get("connection.user")
    if user and url.startswith("postgres") and "@" not in url:
        scheme, _, address = url.partition("://")
        password = config.get("connection.password")
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        url = f"{scheme}://{login}@{address}"
    return url


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
        raise UserError(f"{missing.name} is missing: pip install 'ottla[spark]'") from missing
    except database_errors() as problem:
        raise UserError(
            f"the database {uri.rsplit('@', maxsplit=1)[-1]} cannot be opened: {first_line(problem)}"
        ) from problem
    raise UserError(f"connection.url is sqlite:///FILE or postgresql://USER@HOST/NAME, not {uri!r}")


def database_errors() -> tuple[type[Exception], ...]:
    from adbc_driver_manager import Error

    return (Error,)


def first_line(problem: Exception) -> str:
    return str(problem).splitlines()[0]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def table_parts(name: str) -> list[str]:
    """SCHEMA.TABLE as its parts; what stands in double quotes is one name."""
    parts = re.findall(r'"((?:[^"]|"")*)"(?:\.|$)|([^."][^.]*)(?:\.|$)', name)
    names = [plain or inside.replace('""', '"') for inside, plain in parts]
    if not names or not all(names):
        raise UserError(f"{name!r} is no name of a table")
    return names


def quoted_table(name: str) -> str:
    return ".".join(map(quoted, table_parts(name)))


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
    if pa.types.is_time(kind) and dialect == "postgresql":
        return "time"
    if pa.types.is_decimal(kind) and dialect == "postgresql":
        return f"numeric({kind.precision},{kind.scale})"
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
        auto_evolve: bool = False,
    ) -> None:
        if insert_mode not in {"insert", "upsert"}:
            raise UserError(f"insert.mode is insert or upsert, not {insert_mode!r}")
        if insert_mode == "upsert" and not pk_fields:
            raise UserError("insert.mode upsert needs pk.fields: the columns of the key")
        self._table = table
        self._quoted = quoted_table(table)
        self._auto_evolve = auto_evolve
        self._columns: set[str] = set()
        self._mode = insert_mode
        self._keys = list(pk_fields)
        self._auto_create = auto_create
        self._connection, self._dialect = connect_sql(uri)

    def put(self, rows: pa.Table, work: Work) -> bool:
        rows = _plain(rows, self._dialect)
        try:
            with self._transaction() as cursor:
                cursor.execute(_CREATE_PROGRESS)
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
            raise UserError(f"the table {self._table} was not written: {first_line(problem)}") from problem
        return True

    def reached(self, application: str) -> int | None:
        try:
            with self._transaction() as cursor:
                cursor.execute(_CREATE_PROGRESS)
                cursor.execute(_PROGRESS_OF.format(self._mark(1)), (application,))
                row = cursor.fetchone()
        except database_errors() as problem:
            raise UserError(f"the progress of {application} cannot be read: {first_line(problem)}") from problem
        return None if row is None else int(row[0])

    def close(self) -> None:
        self._connection.close()

    def _change(self, cursor: Any, rows: pa.Table) -> None:
        if self._keys:
            rows = last_of_each(rows, self._keys)
        kept, gone = without_deleted(rows)
        if self._auto_evolve:  # a column that has shown no value yet has no type to be made with
            kept = kept.drop_columns([name for name in _untyped(kept) if name not in self._columns])
        statement, bound = self._insert(kept)
        if self._mode == "upsert":
            updated = [name for name in kept.column_names if name not in self._keys]
            keys = ", ".join(map(quoted, self._keys))
            sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in updated)
            statement += f" on conflict ({keys}) do " + (f"update set {sets}" if sets else "nothing")
        if kept.num_rows:
            cursor.executemany(statement, bound)
        if gone.num_rows and self._keys:
            same = " and ".join(f"{quoted(key)} = {self._mark(number + 1)}" for number, key in enumerate(self._keys))
            cursor.executemany(f"delete from {self._quoted} where {same}", gone.select(self._keys))  # noqa: S608 - as above

    def _insert(self, kept: pa.Table) -> tuple[str, pa.Table]:
        """The statement and what is bound to it: databases do not take values of no type, so those are written out."""
        untyped = set(_untyped(kept))
        bound = kept.drop_columns(list(untyped)) if len(untyped) < kept.num_columns else kept
        number, marks = 0, []
        for name in kept.column_names:
            number += name in bound.column_names
            marks.append(self._mark(number) if name in bound.column_names else "null")
        names = ", ".join(map(quoted, kept.column_names))
        return f"insert into {self._quoted} ({names}) values ({', '.join(marks)})", bound  # noqa: S608 - quoted names, bound values

    def _prepare(self, cursor: Any, schema: pa.Schema) -> None:
        if self._auto_create and not self._columns:
            typed = [field for field in schema if not (self._auto_evolve and pa.types.is_null(field.type))]
            columns = [f"{quoted(field.name)} {sql_type(field.type, self._dialect)}" for field in typed]
            if self._keys:
                columns.append(f"primary key ({', '.join(map(quoted, self._keys))})")
            cursor.execute(f"create table if not exists {self._quoted} ({', '.join(columns)})")
        if self._auto_evolve:
            self._evolve(cursor, schema)

    def _evolve(self, cursor: Any, schema: pa.Schema) -> None:
        """Columns that are new in the rows are added to the table."""
        if not self._columns:
            cursor.execute(f"select * from {self._quoted} where 1 = 0")  # noqa: S608 - a quoted name
            self._columns = {column[0] for column in cursor.description}
        for field in schema:
            if field.name not in self._columns and not pa.types.is_null(field.type):
                kind = sql_type(field.type, self._dialect)
                cursor.execute(f"alter table {self._quoted} add column {quoted(field.name)} {kind}")
        self._columns |= {field.name for field in schema if not pa.types.is_null(field.type)}

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            yield cursor
            self._connection.commit()
        except BaseException:  # any error: the transaction must not stay open; raised again below
            self._columns = set()  # what was added goes with it
            self._connection.rollback()
            raise
        finally:
            cursor.close()

    def _mark(self, number: int) -> str:
        return f"${number}" if self._dialect == "postgresql" else "?"


def _untyped(rows: pa.Table) -> list[str]:
    return [field.name for field in rows.schema if pa.types.is_null(field.type)]


def _plain(rows: pa.Table, dialect: str) -> pa.Table:
    """Columns that databases take: nested ones become JSON text; decimals and times too where there is no such type."""
    import json

    for index, field in enumerate(rows.schema):
        nested = pa.types.is_nested(field.type)
        if nested or (dialect == "sqlite" and (pa.types.is_decimal(field.type) or pa.types.is_time(field.type))):
            write: Any = (lambda value: json.dumps(value, default=str)) if nested else str
            texts = [None if value is None else write(value) for value in rows.column(index).to_pylist()]
            rows = rows.set_column(index, field.name, pa.array(texts, pa.string()))
    return rows
