"""The statements that bring staged rows into a table: insert or upsert; with keys, the last row of a key counts.

A staging table has the columns of the rows and, with keys, ROW: the position of a row among the rows of its source. A
table is merged from several staging tables one after the other, so the order of the sources counts, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ottla.connect.databases import Dialect, create_table, database_rows, quoted
from ottla.connect.sinks.base import DELETED

ROW = "__ottla_row"
_TEMPORARY = "__ottla_rows"
_CAST = "cast({name} as {kind})"
_ARRAY = (
    "case when {name} is not null then cast(array(select element from jsonb_array_elements_text(cast({name} as jsonb)) "
    "with ordinality as elements (element, place) order by place) as {kind}) end"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    table: str
    """Quoted."""
    schema: pa.Schema
    """That of the rows, DELETED included."""
    keys: tuple[str, ...] = ()
    replaces: bool = True
    """A row replaces the stored row of its key. Otherwise such a row is an error of the database."""
    casts: Mapping[str, str] = field(default_factory=dict)
    """Expressions for columns whose staged text is no value of the table's type yet, such as uuid."""

    @property
    def columns(self) -> list[pa.Field]:
        return [field for field in self.schema if field.name not in {DELETED, ROW}]

    def create(self, cursor: Any, dialect: Dialect) -> None:
        """Creates the target if it is missing."""
        columns = [f"{quoted(field.name)} {dialect.sql_type(field.type)}" for field in self.columns]
        if self.keys:
            columns.append(f"primary key ({', '.join(map(quoted, self.keys))})")
        create_table(cursor, dialect, self.table, ", ".join(columns))

    def statements(self, source: str) -> list[str]:
        """From one staging table, whose name is quoted."""
        if self.casts:
            expressions = [f"{self.casts.get(name, quoted(name))} as {quoted(name)}" for name in self.schema.names]
            source = f"(select {', '.join(expressions)} from {source}) as staged"  # noqa: S608 - quoted names
        names = [field.name for field in self.columns]
        listed = ", ".join(map(quoted, names))
        # A column without a type has nulls only, which a staging table stores as text.
        values = ", ".join("null" if pa.types.is_null(field.type) else quoted(field.name) for field in self.columns)
        deletes = DELETED in self.schema.names and not pa.types.is_null(self.schema.field(DELETED).type)
        gone = f"coalesce({quoted(DELETED)}, false)" if deletes else ""
        if not self.keys:
            kept = f" where not {gone}" if gone else ""
            return [f"insert into {self.table} ({listed}) select {values} from {source}{kept}"]  # noqa: S608 - quoted names
        keys = ", ".join(map(quoted, self.keys))
        last = (
            f"(select *, row_number() over (partition by {keys} order by {quoted(ROW)} desc) as __ottla_rank "  # noqa: S608 - quoted names
            f"from {source}) as ranked where __ottla_rank = 1"
        )
        insert = f"insert into {self.table} ({listed}) select {values} from {last}{f' and not {gone}' if gone else ''}"  # noqa: S608 - quoted names
        if self.replaces:
            sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names if name not in self.keys)
            insert += f" on conflict ({keys}) do " + (f"update set {sets}" if sets else "nothing")
        same = " and ".join(f"ranked.{quoted(key)} = {self.table}.{quoted(key)}" for key in self.keys)
        delete = f"delete from {self.table} where exists (select 1 from {last} and {gone} and {same})"  # noqa: S608 - quoted names
        return [delete, insert] if gone else [insert]

    def run(self, cursor: Any, source: str) -> None:
        for statement in self.statements(source):
            cursor.execute(statement)

    def run_from(self, cursor: Any, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Through a temporary table, in bulk."""
        cursor.adbc_ingest(_TEMPORARY, rows, mode="create", temporary=True)
        self.run(cursor, quoted(_TEMPORARY))
        cursor.execute(f"drop table {quoted(_TEMPORARY)}")


def text_casts(cursor: Any, dialect: Dialect, table: str, schema: pa.Schema) -> dict[str, str]:
    """How the text of staged rows becomes a value of the table's columns, as far as an insert does not do so by itself.

    `schema` is that of the rows before staging. `table` is quoted.
    """
    if not dialect.text_types:
        return {}
    casts = {}
    for statement, expression in ((dialect.text_types, _CAST), (dialect.array_types, _ARRAY)):
        cursor.execute(statement, (table,))
        for name, kind in cursor.fetchall():
            index = schema.get_field_index(name)
            column = schema.field(index).type if index >= 0 else pa.null()
            is_flat_list = pa.types.is_list(column) and not pa.types.is_nested(column.value_type)
            if (
                dialect.sql_type(column) == "text"
                and (expression is _CAST or is_flat_list)
                and not pa.types.is_null(column)
            ):
                casts[name] = expression.format(name=quoted(name), kind=kind)
    return casts


def new_columns(cursor: Any, table: str, schema: pa.Schema) -> list[pa.Field]:
    """The typed columns of `schema` that a table does not have; its name is quoted."""
    cursor.execute(f"select * from {table} where 1 = 0")  # noqa: S608 - a quoted name
    there = {column[0] for column in cursor.description}
    return [field for field in schema if field.name not in there and not pa.types.is_null(field.type)]


def add_columns(cursor: Any, dialect: Dialect, table: str, fields: Sequence[pa.Field]) -> None:
    for column in fields:
        cursor.execute(f"alter table {table} add column {quoted(column.name)} {dialect.sql_type(column.type)}")


def staged_rows(rows: pa.Table, dialect: Dialect, keys: Sequence[str], first: int = 0) -> pa.Table:
    """The columns of a staging table; `first` is the position of the first row."""
    rows = database_rows(rows, dialect)
    if not keys:
        return rows
    return rows.append_column(ROW, pa.array(range(first, first + rows.num_rows), pa.int64()))
