"""SQL tables over ADBC. The rows and the version of the work are one database transaction, which takes the version first.

Kafka Connect's JDBC names: insert.mode (insert, upsert), pk.fields, delete.enabled, auto.create, auto.evolve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ottla.connect.config import need
from ottla.connect.databases import (
    check_names,
    connect_sql,
    database_errors,
    quoted_table,
    reason_of,
    transaction,
)
from ottla.connect.sinks.base import DELETED, Work, refuse_null_keys
from ottla.connect.sinks.sql_merge import Merge, add_columns, staged_rows
from ottla.connect.sinks.sql_progress import create_progress, reached_version, take_version
from ottla.model.user_error import UserError


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
        self._has_progress = False
        self._mode = insert_mode
        self._keys = tuple(pk_fields)
        self._auto_create = auto_create
        self._connection, self._dialect = connect_sql(uri)

    def put(self, rows: pa.Table, work: Work) -> bool:
        check_names(self._dialect, self._table, rows.column_names)
        if self._mode == "upsert":
            refuse_null_keys(rows, self._keys, f"the table {self._table}")
        try:
            self._create_progress()
            with self._transaction() as cursor:
                if not take_version(cursor, self._dialect, work):
                    return False
                self._prepare(cursor, pa.schema([field for field in rows.schema if field.name != DELETED]))
                self._change(cursor, rows)
        except database_errors() as problem:
            raise UserError(f"the table {self._table} was not written: {reason_of(problem)}") from problem
        return True

    def reached(self, application: str) -> int | None:
        try:
            self._create_progress()
            with self._transaction() as cursor:
                return reached_version(cursor, self._dialect, application)
        except database_errors() as problem:
            raise UserError(f"the progress of {application} cannot be read: {reason_of(problem)}") from problem

    def close(self) -> None:
        self._connection.close()

    def _create_progress(self) -> None:
        if not self._has_progress:
            create_progress(self._connection, self._dialect)
            self._has_progress = True

    def _change(self, cursor: Any, rows: pa.Table) -> None:
        if self._auto_evolve:  # a column that has shown no value yet has no type for the table
            rows = rows.drop_columns([name for name in _untyped(rows) if name not in self._columns])
        if rows.num_rows:
            staged = staged_rows(rows, self._dialect, self._keys)
            self._merge(staged.schema).run_from(cursor, staged)

    def _prepare(self, cursor: Any, schema: pa.Schema) -> None:
        if self._auto_create and not self._columns:
            typed = [field for field in schema if not (self._auto_evolve and pa.types.is_null(field.type))]
            self._merge(pa.schema(typed)).create(cursor, self._dialect)
        if self._auto_evolve:
            self._evolve(cursor, schema)

    def _merge(self, schema: pa.Schema) -> Merge:
        return Merge(table=self._quoted, schema=schema, keys=self._keys, replaces=self._mode == "upsert")

    def _evolve(self, cursor: Any, schema: pa.Schema) -> None:
        """Columns that are new in the rows are added to the table."""
        if not self._columns:
            cursor.execute(f"select * from {self._quoted} where 1 = 0")  # noqa: S608 - a quoted name
            self._columns = {column[0] for column in cursor.description}
        typed = [field for field in schema if not pa.types.is_null(field.type)]
        added = [field for field in typed if field.name not in self._columns]
        add_columns(cursor, self._dialect, self._quoted, added)
        self._columns |= {field.name for field in schema if not pa.types.is_null(field.type)}

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            with transaction(self._connection, self._dialect) as cursor:
                yield cursor
        except BaseException:  # any error: raised again below
            self._columns = set()  # the added columns are gone with the transaction
            self._has_progress = False
            raise


def _untyped(rows: pa.Table) -> list[str]:
    return [field.name for field in rows.schema if pa.types.is_null(field.type)]
