"""SQL tables: executors copy rows into staging tables, and one transaction on the driver merges them into the table.

A staging table belongs to one attempt of a task. Its name holds query, batch, task and attempt, so that the driver merges
the attempts that Spark chose, and `sweep` finds the rest. Where processes cannot write into one database at the same time
(SQLite), an attempt stages an Arrow file in a folder beside the database instead. All executors must share that folder.

The version of an application is stored per table, as Delta stores it: one application may write several tables.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ottla.connect.databases import (
    Dialect,
    check_names,
    connect_sql,
    database_errors,
    dialect_of,
    file_of,
    quoted,
    quoted_table,
    reason_of,
    table_parts,
    transaction,
)
from ottla.connect.sinks.base import Work, refuse_null_keys
from ottla.connect.sinks.sql import connection_url
from ottla.connect.sinks.sql_merge import Merge, add_columns, new_columns, staged_rows, text_casts
from ottla.connect.sinks.sql_progress import create_progress, forget, reached_version, take_version
from ottla.model.user_error import UserError
from ottla.pipelines.options import boolean, whole
from ottla.pipelines.outputs.base import StagedRows, TaskAttempt
from ottla.pipelines.outputs.evolution import EVOLVE, refused_columns
from ottla.pipelines.sql_reader import RANGES, SqlInput

MOST_DROPPED = 500
"""Staging tables that one transaction drops: PostgreSQL locks each one, and its table of locks has 6,400 places as it comes."""


@dataclass(frozen=True, kw_only=True)
class SqlStaged(StagedRows):
    task: int
    source: str
    """A staging table or file; empty for an attempt without rows."""


@dataclass(slots=True, kw_only=True)
class SqlOutput:
    uri: str = field(repr=False)
    table: str
    keys: tuple[str, ...] = ()
    overwrite: bool = False
    staging_schema: str | None = None
    """The schema of staging tables; that of the table if missing."""
    schema: pa.Schema | None = None
    casts: dict[str, str] = field(default_factory=dict)
    evolve: bool = False

    def prepare(self, schema: pa.Schema) -> None:
        """Merges no rows into the table and rolls back, so that the database checks names, types, keys and rights.

        The write to the table of progress comes first: SQLite does not wait for a lock after a read.
        """
        self.check(schema)
        with self._connected("cannot be written") as (connection, dialect):
            staged = staged_rows(schema.empty_table(), dialect, self.keys)
            self.schema = staged.schema
            create_progress(connection, dialect)
            with transaction(connection, dialect, kept=False) as cursor:
                word = uuid.uuid4().hex
                take_version(cursor, dialect, Work(application=word, version=0))
                self._fit(cursor, dialect)
                self.casts = text_casts(cursor, dialect, quoted_table(self.table), schema)
                if dialect.staging_tables:
                    name = _staging_name(self._prefix(word), 0, word, word)
                    self._create_staging(cursor, dialect, name, staged)
                    self._merge.run(cursor, self._quoted_staging(name))
                else:
                    self._merge.run_from(cursor, staged)

    def check(self, schema: pa.Schema) -> None:
        """UserError for columns that no table of the database can have; nothing is opened."""
        check_names(dialect_of(self.uri), self.table, schema.names)
        missing = [key for key in self.keys if key not in schema.names]
        if missing:
            raise UserError(
                f"the key {missing[0]!r} of {self.table} is not a column; there are {', '.join(schema.names)}"
            )

    def reached(self, application: str) -> int | None:
        with self._connected("cannot be read") as (connection, dialect):
            create_progress(connection, dialect)
            with transaction(connection, dialect) as cursor:
                return self._reached(cursor, dialect, application)

    def stage(self, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt) -> SqlStaged:
        first = next((batch for batch in batches if batch.num_rows), None)
        staged = SqlStaged(application=attempt.application, attempt=attempt.name, rows=0, task=attempt.task, source="")
        if first is None:
            return staged
        name = _staging_name(self._prefix(attempt.application), attempt.version, attempt.job, attempt.name)
        rows = _Rows(first, batches, dialect_of(self.uri), self.keys, self.table)
        try:
            if rows.dialect.staging_tables:
                with (
                    self._connected("was not written") as (connection, dialect),
                    transaction(connection, dialect) as cursor,
                ):
                    self._create_staging(cursor, dialect, name, rows.schema.empty_table())
                    cursor.adbc_ingest(name, rows.reader(), mode="append", db_schema_name=self._staging_schema)
                return replace(staged, rows=rows.count, source=name)
            path = os.path.join(self._folder, f"{name}.arrow")
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
                for batch in rows.batches():
                    writer.write_batch(batch)
            return replace(staged, rows=rows.count, source=path)
        except (UserError, OSError) as problem:
            if rows.problem is not None:
                raise rows.problem from None
            column = rows.column_with_nul() if "0x00" in str(problem) else None
            if column is not None:
                raise UserError(
                    f"the table {self.table} was not written: a value of {column} has the character NUL, which a text of the "
                    f"database cannot hold. Remove the character (replace({column}, char(0), '')), or cast to binary"
                ) from problem
            if isinstance(problem, OSError):
                raise UserError(f"rows cannot be staged in {self._folder}: {problem.strerror or problem}") from problem
            raise

    def commit(self, staged: Sequence[StagedRows], work: Work) -> bool:
        sources = sorted(
            (rows for rows in staged if isinstance(rows, SqlStaged) and rows.source), key=lambda rows: rows.task
        )
        with self._connected("was not written") as (connection, dialect):
            create_progress(connection, dialect)
            with transaction(connection, dialect) as cursor:
                if not self._take(cursor, dialect, work):
                    return False
                self._fit(cursor, dialect)
                if self.overwrite:
                    cursor.execute(f"delete from {quoted_table(self.table)}")  # noqa: S608 - a quoted name
                for rows in sources:
                    self._merge_source(cursor, dialect, rows)
                if dialect.staging_tables:
                    self._drop(cursor, [rows.source for rows in sources[:MOST_DROPPED]])
                if not work.is_marked:
                    forget(cursor, dialect, self._progress_key(work.application))
        if not dialect.staging_tables:
            _remove([rows.source for rows in sources])
        return True

    def sweep(self, work: Work, job: str | None = None) -> None:
        prefix = self._prefix(work.application)

        def is_done(name: str, committed: int | None) -> bool:
            version, name_job = _parts(name, prefix)
            if committed is not None and version <= committed:
                return True
            return job is not None and (version, name_job) == (work.version, _hash(job, 8))

        with self._connected("cannot be swept") as (connection, dialect):
            create_progress(connection, dialect)
            with transaction(connection, dialect) as cursor:
                committed = self._reached(cursor, dialect, work.application)
                if not work.is_marked and job is None:
                    committed = work.version
                names = [name for name in self._staged_names(cursor, dialect, prefix) if is_done(name, committed)]
            if not dialect.staging_tables:
                _remove([os.path.join(self._folder, name) for name in names])
                return
            for start in range(0, len(names), MOST_DROPPED):
                with transaction(connection, dialect) as cursor:
                    self._drop(cursor, names[start : start + MOST_DROPPED])

    def _staged_names(self, cursor: Any, dialect: Dialect, prefix: str) -> list[str]:
        if dialect.staging_tables:
            cursor.execute(dialect.staging_tables, (self._staging_schema, prefix))
            return [row[0] for row in cursor.fetchall()]
        names = os.listdir(self._folder) if os.path.isdir(self._folder) else []
        return [name for name in names if name.startswith(prefix)]

    @property
    def _merge(self) -> Merge:
        if self.schema is None:
            raise RuntimeError("an output stages and commits after prepare")
        return Merge(table=quoted_table(self.table), schema=self.schema, keys=self.keys, casts=self.casts)

    def _fit(self, cursor: Any, dialect: Dialect) -> None:
        """Makes a missing table. A missing column is added with `evolve`, in the transaction of the rows."""
        self._merge.create(cursor, dialect)
        table = quoted_table(self.table)
        fields = new_columns(cursor, table, pa.schema(self._merge.columns))
        if fields and not self.evolve:
            raise UserError(refused_columns(f"the table {self.table}", [field.name for field in fields]))
        add_columns(cursor, dialect, table, fields)

    def _merge_source(self, cursor: Any, dialect: Dialect, rows: SqlStaged) -> None:
        if dialect.staging_tables:
            source = self._quoted_staging(rows.source)
            cursor.execute(f"select exists (select from {source})")  # noqa: S608 - a quoted name
            if not cursor.fetchone()[0]:  # PostgreSQL empties unlogged tables when it recovers from a crash
                raise UserError(f"the database lost the rows that were staged for {self.table}: write the batch again")
            self._merge.run(cursor, source)
            return
        try:
            with pa.OSFile(rows.source) as file, pa.ipc.open_stream(file) as reader:
                self._merge.run_from(cursor, reader)
        except FileNotFoundError as problem:
            raise UserError(
                f"the staged rows {rows.source} are missing: put the database into a folder that driver and executors share"
            ) from problem

    def _take(self, cursor: Any, dialect: Dialect, work: Work) -> bool:
        if not take_version(cursor, dialect, replace(work, application=self._progress_key(work.application))):
            return False
        earlier = reached_version(cursor, dialect, work.application)
        return earlier is None or earlier < work.version

    def _reached(self, cursor: Any, dialect: Dialect, application: str) -> int | None:
        keys = (self._progress_key(application), application)
        versions = [reached_version(cursor, dialect, key) for key in keys]
        return max((version for version in versions if version is not None), default=None)

    def _progress_key(self, application: str) -> str:
        """Earlier versions stored the application without the table; those rows are read and not changed."""
        return f"{application} {quoted_table(self.table)}"

    def _prefix(self, application: str) -> str:
        """The same for all staging tables of a query and a table. PostgreSQL cuts names at 63 bytes, so it is a hash."""
        return f"ottla_{_hash(self._progress_key(application), 12)}_"

    @property
    def _staging_schema(self) -> str | None:
        parts = table_parts(self.table)
        return self.staging_schema or (parts[-2] if len(parts) > 1 else None)

    def _quoted_staging(self, name: str) -> str:
        return ".".join(quoted(part) for part in (self._staging_schema, name) if part)

    def _create_staging(self, cursor: Any, dialect: Dialect, name: str, empty: pa.Table) -> None:
        cursor.adbc_ingest(name, empty, mode="create", db_schema_name=self._staging_schema)
        cursor.execute(dialect.unlogged.format(self._quoted_staging(name)))

    def _drop(self, cursor: Any, names: Sequence[str]) -> None:
        if names:
            cursor.execute(f"drop table if exists {', '.join(map(self._quoted_staging, names))}")

    @property
    def _folder(self) -> str:
        return f"{file_of(self.uri)}.staging"

    @contextmanager
    def _connected(self, failure: str) -> Iterator[tuple[Any, Dialect]]:
        connection, dialect = connect_sql(self.uri)
        try:
            yield connection, dialect
        except database_errors() as problem:
            raise UserError(f"the table {self.table} {failure}: {reason_of(problem)}") from problem
        finally:
            connection.close()


class _Rows:
    """The batches of a task as the columns of a staging table. `problem` is the error of the batches themselves: a driver
    reports such an error as its own."""

    def __init__(
        self, first: pa.RecordBatch, later: Iterator[pa.RecordBatch], dialect: Dialect, keys: Sequence[str], table: str
    ) -> None:
        self.dialect = dialect
        self.count = 0
        self.problem: Exception | None = None
        self._first, self._later, self._keys, self._table = first, later, keys, table
        self._last = self._staged(first.slice(0, 0))
        self.schema: pa.Schema = self._last.schema

    def column_with_nul(self) -> str | None:
        """A database reports that character without its column. The batch is one of those that the driver has read."""
        import pyarrow.compute as pc

        names = (field.name for field in self.schema if pa.types.is_string(field.type))
        return next((name for name in names if pc.any(pc.match_substring(self._last.column(name), "\0")).as_py()), None)

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        batch = self._first
        try:
            while True:
                self._last = self._staged(batch)
                yield from self._last.to_batches()
                self.count += batch.num_rows
                batch = next(self._later)
        except StopIteration:
            return
        except Exception as problem:  # any error of the code that computes the rows: `stage` raises this error again
            self.problem = problem
            raise

    def _staged(self, batch: pa.RecordBatch) -> pa.Table:
        rows = pa.Table.from_batches([batch])
        refuse_null_keys(rows, self._keys, f"the table {self._table}")
        return staged_rows(rows, self.dialect, self._keys, self.count)


def make(options: Mapping[str, str], *, overwrite: bool) -> SqlOutput:
    """The options of Spark's JDBC source (url, dbtable, user, password), keys (`a,b` or a JSON list), stagingSchema and evolve."""
    uri, table = _address(options)
    keys = tuple(_names(options.get("keys", "")))
    return SqlOutput(
        uri=uri,
        table=table,
        keys=keys,
        overwrite=overwrite,
        staging_schema=options.get("stagingschema"),
        evolve=boolean(options, EVOLVE, default=False),
    )


def make_input(options: Mapping[str, str]) -> SqlInput:
    """Url, dbtable, user and password as for outputs; partitionColumn and numPartitions as in Spark's JDBC source."""
    uri, table = _address(options)
    return SqlInput(
        uri=uri,
        table=table,
        partition_column=options.get("partitioncolumn"),
        ranges=whole(options, "numpartitions") or RANGES,
    )


def _address(options: Mapping[str, str]) -> tuple[str, str]:
    for option in ("url", "dbtable"):
        if not options.get(option):
            raise UserError(
                f"the option {option} is missing: ottla-sql needs the database's url and the table, dbtable"
            )
    names = {"connection.url": "url", "connection.user": "user", "connection.password": "password"}
    uri = connection_url({name: options[option] for name, option in names.items() if option in options})
    return _absolute(uri), options["dbtable"]


def _absolute(uri: str) -> str:
    """Workers of Spark have working directories of their own."""
    if not uri.startswith("sqlite://"):
        return uri
    path = file_of(uri)
    if path in {"", ":memory:"}:
        raise UserError("a database in memory cannot be an output: give sqlite:///FILE")
    return f"sqlite:///{os.path.abspath(path)}"


def _names(text: str) -> list[str]:
    if text.startswith("["):
        return [str(name) for name in json.loads(text)]
    return [name.strip() for name in text.split(",") if name.strip()]


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _staging_name(prefix: str, version: int, job: str, attempt: str) -> str:
    """At most 60 bytes. Names of jobs and attempts have no bound, so they are hashes; a sweep reads version and job."""
    return f"{prefix}{version}_{_hash(job, 8)}_{_hash(attempt, 12)}"


def _parts(name: str, prefix: str) -> tuple[int, str]:
    version, job, _ = name.removeprefix(prefix).split("_")
    return int(version), job


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        try:
            os.remove(path)
        except FileNotFoundError:
            continue
