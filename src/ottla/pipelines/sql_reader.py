"""SQL tables as inputs of Spark: `format("ottla-sql")` reads ranges of a key on executors, each with memory for a few batches.

The ranges have equal widths between the smallest and the largest value of an integer column: `partitionColumn`, or the
primary key of PostgreSQL if that is one integer. Without such a column, one task reads the table. Each range is a
transaction of its own, as in Spark's JDBC source: rows that change while the table is read may have both states.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ottla.connect.databases import connect_sql, database_errors, dialect_of, quoted, quoted_table, reason_of
from ottla.model.user_error import UserError

RANGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlInput:
    uri: str = field(repr=False)
    table: str
    partition_column: str | None = None
    ranges: int = RANGES

    def columns(self) -> list[SqlColumn]:
        """Read from an empty result; SQLite has types in its rows only, so the first rows are read there."""
        where = "where 1 = 0" if dialect_of(self.uri).type_of else "limit 1000"
        with self._cursor() as cursor:
            cursor.execute(f"select * from {quoted_table(self.table)} {where}")  # noqa: S608 - a quoted name
            return [_column(column) for column in cursor.fetch_arrow_table().schema]

    def batches(self, where: str = "", columns: list[SqlColumn] | None = None) -> Iterator[pa.RecordBatch]:
        columns = self.columns() if columns is None else columns
        listed = ", ".join(column.expression for column in columns)
        schema = pa.schema([(column.name, column.type) for column in columns])
        with self._cursor() as cursor:
            cursor.execute(f"select {listed} from {quoted_table(self.table)} {where}")  # noqa: S608 - quoted names
            for batch in cursor.fetch_record_batch():
                arrays = [_stored(batch.column(number)).cast(column.type) for number, column in enumerate(columns)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def read(self) -> pa.Table:
        """All of the table, in memory."""
        columns = self.columns()
        schema = pa.schema([(column.name, column.type) for column in columns])
        return pa.Table.from_batches(self.batches(columns=columns), schema)

    def conditions(self) -> list[str]:
        """One for each task."""
        with self._cursor() as cursor:
            column = self.partition_column or self._integer_key(cursor)
            if column is None:
                return [""]
            name = quoted(column)
            cursor.execute(f"select min({name}), max({name}) from {quoted_table(self.table)}")  # noqa: S608 - quoted names
            low, high = cursor.fetchone()
        if low is None:
            return [""]
        if not isinstance(low, int):
            raise UserError(
                f"partitionColumn {column} of {self.table} is not an integer column: name a different column"
            )
        edges = sorted({low + (high + 1 - low) * number // self.ranges for number in range(1, self.ranges)} - {low})
        # The first and the last range are open, for rows that come between this question and the reads.
        below = [f"{name} < {edge}" for edge in edges]
        above = [f"{name} >= {edge}" for edge in edges]
        first = f"({below[0]} or {name} is null)" if edges else ""
        between = [f"{lower} and {upper}" for lower, upper in zip(above, below[1:], strict=False)]
        return [f"where {condition}" if condition else "" for condition in [first, *between, *above[-1:]]]

    def _integer_key(self, cursor: Any) -> str | None:
        statement = dialect_of(self.uri).integer_key
        if not statement:
            return None
        cursor.execute(statement, (quoted_table(self.table),))
        row = cursor.fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        connection, _ = connect_sql(self.uri)
        try:
            with connection.cursor() as cursor:
                yield cursor
        except (*database_errors(), pa.ArrowInvalid) as problem:
            raise UserError(f"the table {self.table} cannot be read: {reason_of(problem)}") from problem
        finally:
            connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlColumn:
    name: str
    expression: str
    type: pa.DataType


@dataclass(frozen=True)
class SqlRange(InputPartition):
    condition: str


class SqlReader(DataSourceReader):
    def __init__(self, source: SqlInput, columns: list[SqlColumn]) -> None:
        self._source = source
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return [SqlRange(condition) for condition in self._source.conditions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        condition = partition.condition if isinstance(partition, SqlRange) else ""
        return self._source.batches(condition, self._columns)


def spark_schema(columns: list[SqlColumn]) -> StructType:
    return from_arrow_schema(pa.schema([(column.name, column.type) for column in columns]))


def _column(column: pa.Field) -> SqlColumn:
    """Spark's type of a column: numeric(p, s) is decimal(p, s), types that Spark does not have are text."""
    name, kind = column.name, column.type
    if _is_numeric(kind):
        # PostgreSQL's modifier of a type: 4 more than precision * 65536 + scale, -1 without both.
        modifier = int((column.metadata or {}).get(b"POSTGRESQL:typmod", -1)) - 4
        precision, scale = modifier >> 16, modifier & 0xFFFF
        decimal = modifier > 0 and precision <= 38 and scale <= precision
        return SqlColumn(
            name=name, expression=quoted(name), type=pa.decimal128(precision, scale) if decimal else pa.string()
        )
    if isinstance(kind, pa.BaseExtensionType) or kind == pa.month_day_nano_interval():
        return SqlColumn(name=name, expression=f"cast({quoted(name)} as text)", type=pa.string())
    return SqlColumn(name=name, expression=quoted(name), type=kind)


def _is_numeric(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.OpaqueType) and kind.type_name == "numeric"


def _stored(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values, pa.ExtensionArray) else values
