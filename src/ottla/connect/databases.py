"""SQL databases over ADBC: what each one does differently is one `Dialect` in `DIALECTS`, and nothing else names a database.

Names are quoted and values are bound, never pasted. A table's name may include its schema, SCHEMA.TABLE; a name that
contains a dot stands in double quotes. Every wait for a lock has a limit: LOCK_S, or the user's own lock_timeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla.model.extras import extra_needed
from ottla.model.user_error import UserError

LOCK_S = 300
"""A writer waits no longer than this for the transaction of a different writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    name: str
    connect: Callable[[str], Any]
    types: Mapping[str, str]
    """The SQL types of `boolean`, `double`, `binary`, `time`, `decimal` and `timestamp_tz`. A missing type is text."""
    mark: str
    """A bound value; `{}` stands for its number."""
    opening: tuple[str, ...] = ()
    """Statements after the start of every transaction that writes."""
    creation_lock: str = ""
    """Waits for each transaction that creates the table with the bound name. PostgreSQL reports an error if two transactions
    create one table; the other databases have one writer."""
    type_of: str = ""
    """Selects the type of a column; table and column are bound. Empty where any value compares with any column."""
    text_types: str = ""
    """Selects name and type of the columns of a table that take text by a cast only, such as uuid and jsonb; the table is
    bound. Empty where every column takes text."""
    array_types: str = ""
    """The same for arrays, whose rows are JSON arrays."""
    integer_key: str = ""
    """Selects the only column of an integer primary key; the table is bound."""
    staging_tables: str = ""
    """Selects names of tables that begin with a prefix; schema and prefix are bound. Empty where processes cannot write
    into one database at the same time: rows are then staged in files beside the database."""
    unlogged: str = ""
    """Makes an empty table unlogged; `{}` stands for its name."""
    name_bytes: int = 0
    """A longer name is cut without an error, so that two columns may become one. 0: names have no such limit."""

    def bound(self, number: int) -> str:
        return self.mark.format(number)

    def sql_type(self, kind: pa.DataType) -> str:
        if pa.types.is_boolean(kind):
            return self.types["boolean"]
        if pa.types.is_integer(kind):
            return "bigint"
        if pa.types.is_floating(kind):
            return "double precision"
        if pa.types.is_timestamp(kind):
            return self.types["timestamp_tz"] if kind.tz else "timestamp"
        if pa.types.is_date(kind):
            return "date"
        if pa.types.is_time(kind):
            return self.types.get("time", "text")
        if pa.types.is_decimal(kind):
            return self.types.get("decimal", "text").format(kind.precision, kind.scale)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return self.types["binary"]
        return "text"

    def written_as_text(self, kind: pa.DataType) -> bool:
        """Decimals and times where the database has no such type."""
        return (pa.types.is_decimal(kind) and "decimal" not in self.types) or (
            pa.types.is_time(kind) and "time" not in self.types
        )


def file_of(uri: str) -> str:
    scheme, _, path = uri.partition("://")
    return path.removeprefix("/") if uri.startswith(f"{scheme}:///") else path


def _sqlite(uri: str) -> Any:
    from adbc_driver_sqlite import dbapi

    connection = dbapi.connect(file_of(uri))
    with connection.cursor() as cursor:
        cursor.execute(f"pragma busy_timeout = {LOCK_S * 1000}")
    return connection


def _postgresql(uri: str) -> Any:
    from adbc_driver_postgresql import dbapi

    return dbapi.connect(uri)


SQLITE = Dialect(
    name="sqlite",
    connect=_sqlite,
    types={"boolean": "integer", "binary": "blob", "timestamp_tz": "timestamp"},
    mark="?",
)
POSTGRESQL = Dialect(
    name="postgresql",
    connect=_postgresql,
    types={
        "boolean": "boolean",
        "binary": "bytea",
        "timestamp_tz": "timestamp with time zone",
        "time": "time",
        "decimal": "numeric({},{})",
    },
    mark="${}",
    # A fenced writer waits and then finds the version; at a higher level of isolation it would fail instead.
    opening=(
        "set transaction isolation level read committed",
        f"select set_config('lock_timeout', '{LOCK_S}s', true) where current_setting('lock_timeout') = '0'",
    ),
    creation_lock="select pg_advisory_xact_lock(hashtext('ottla'), hashtext($1))",
    type_of="select format_type(atttypid, -1) from pg_attribute where attrelid = $1::text::regclass "
    "and attname = $2::text",
    # Categories: user-defined (uuid, json, jsonb, xml), enum, network address, time span, bit string, geometric.
    text_types="select attname::text, format_type(atttypid, atttypmod) from pg_attribute join pg_type on pg_type.oid = atttypid "
    "where attrelid = to_regclass($1::text) and attnum > 0 and not attisdropped and typcategory in ('U', 'E', 'I', 'T', 'V', 'G') "
    "and typname <> 'bytea'",
    array_types="select attname::text, format_type(atttypid, atttypmod) from pg_attribute join pg_type on pg_type.oid = atttypid "
    "where attrelid = to_regclass($1::text) and attnum > 0 and not attisdropped and typcategory = 'A' and attndims <= 1",
    integer_key="select attname::text from pg_index join pg_attribute on attrelid = indrelid and attnum = indkey[0] "
    "where indrelid = $1::text::regclass and indisprimary and indnkeyatts = 1 "
    "and atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)",
    staging_tables="select relname::text from pg_class join pg_namespace space on space.oid = relnamespace "
    "where relkind = 'r' and nspname = coalesce($1::text, current_schema()) and starts_with(relname::text, $2::text)",
    unlogged="alter table {} set unlogged",
    name_bytes=63,
)
DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "postgres": POSTGRESQL}
"""DuckDB is missing on purpose. Two connections of its ADBC driver in one process open one file as two databases: both take
a version, and the file is corrupt afterwards (duckdb 2.0.0).
"""


def dialect_of(uri: str) -> Dialect:
    dialect = DIALECTS.get(uri.partition("://")[0]) if "://" in uri else None
    if dialect is None:
        raise UserError(
            f"a database's URL is sqlite:///FILE or postgresql://USER@HOST/NAME, not {without_login(uri)!r}"
        )
    return dialect


_ADVICE = {
    "authentication failed": "; check the user and the password in the address",
    "Connection refused": "; check the address, and whether the database runs",
    "does not exist": "; create it, or correct the address",
}
"""What to do, by words of PostgreSQL."""


def connect_sql(uri: str) -> tuple[Any, Dialect]:
    """A DB-API connection and its dialect, for `sqlite:///FILE` and `postgresql://...`."""
    dialect = dialect_of(uri)
    try:
        with extra_needed("a SQL database"):
            return dialect.connect(uri), dialect
    except UserError:
        raise
    except database_errors() as problem:
        reason = reason_of(problem)
        advice = next((advice for words, advice in _ADVICE.items() if words in reason), "")
        raise UserError(f"the database {without_login(uri)} cannot be opened: {reason}{advice}") from problem


@contextmanager
def transaction(connection: Any, dialect: Dialect, *, kept: bool = True) -> Iterator[Any]:
    """A cursor; its statements are committed together, or rolled back with any error and if `kept` is false."""
    cursor = connection.cursor()
    try:
        for statement in dialect.opening:
            cursor.execute(statement)
        yield cursor
        connection.commit() if kept else connection.rollback()
    except BaseException:  # any error: the transaction must not stay open; raised again below
        connection.rollback()
        raise
    finally:
        cursor.close()


def database_errors() -> tuple[type[Exception], ...]:
    from adbc_driver_manager import Error

    return (Error,)


def reason_of(problem: Exception) -> str:
    """The database's own sentence, without the statement and the driver's frame around it."""
    lines = str(problem).splitlines() or [type(problem).__name__]
    for line in lines:
        sentence = re.search(r"\b(?:ERROR|FATAL): +(.*)", line)
        if sentence:
            return sentence[1]
    return lines[0]


def without_login(uri: str) -> str:
    return uri.rsplit("@", maxsplit=1)[-1]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def table_parts(name: str) -> list[str]:
    """SCHEMA.TABLE as its parts; what stands in double quotes is one name."""
    parts = re.findall(r'"((?:[^"]|"")*)"(?:\.|$)|([^."][^.]*)(?:\.|$)', name)
    names = [plain or inside.replace('""', '"') for inside, plain in parts]
    if not names or not all(names):
        raise UserError(f"{name!r} is not the name of a table")
    return names


def quoted_table(name: str) -> str:
    return ".".join(map(quoted, table_parts(name)))


def check_names(dialect: Dialect, table: str, columns: Iterable[str]) -> None:
    """UserError for names that the database would cut."""
    for kind, names in (("name", table_parts(table)), ("column", columns)):
        for name in names:
            size = len(name.encode())
            if 0 < dialect.name_bytes < size:
                raise UserError(
                    f"the {kind} {name} of the table {table} has {size} bytes, and {dialect.name} cuts names after "
                    f"{dialect.name_bytes}: choose a shorter name"
                )


def create_table(cursor: Any, dialect: Dialect, table: str, columns: str) -> None:
    """Creates a table that is missing, also if a second transaction does the same at this moment. `table` is quoted."""
    create = f"create table if not exists {table} ({columns})"
    if dialect.creation_lock:
        cursor.execute(f"select to_regclass({dialect.bound(1)}::text) is not null", (table,))
        if cursor.fetchone()[0]:
            return
        cursor.execute(dialect.creation_lock, (table,))
        cursor.fetchall()
    cursor.execute(create)


def database_rows(rows: pa.Table, dialect: Dialect) -> pa.Table:
    """Columns that databases store: nested ones become JSON text; decimals and times too where there is no such type."""
    for index, field in enumerate(rows.schema):
        nested = pa.types.is_nested(field.type)
        if nested or dialect.written_as_text(field.type):
            write: Any = _json if nested else str
            texts = [None if value is None else write(value) for value in rows.column(index).to_pylist()]
            rows = rows.set_column(index, field.name, pa.array(texts, pa.string()))
    return rows


def _json(value: Any) -> str:
    import json

    return json.dumps(value, default=_json_text)


def _json_text(value: Any) -> str:
    """Bytes as Spark's to_json writes them."""
    import base64

    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
