"""A query of the SQL page: DuckDB over topics as `ottla.tables` reads them, in a cage, with few rows shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.messages.decode import Decoder
from ottla.console.messages.masked import Masker, masked_table
from ottla.console.settings import MAX_SQL_ROWS
from ottla.console.site import Site
from ottla.security.grants import TOPIC

MAX_RECORDS = 200_000
"""Of each partition: the newest."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    offsets: dict[str, str]
    """Topic -> the end offsets that the answer is true at."""


def run_query(site: Site, query: str) -> QueryResult:
    """With the rights of the site's user, and its masks."""
    from ottla.tables.query import Cage, run_sql
    from ottla.tables.topics import TableError

    if not query.strip():
        raise ConsoleError("Write a query, such as: select * from my_topic limit 10")

    def shown_rows(topic: str, rows: Any) -> Any:
        mask = site.mask_of(topic)
        return rows if mask is None else masked_table(rows, Masker(mask, Decoder(site.registry)))

    try:
        table, ends = run_sql(
            site.wire_properties, query, max_records=MAX_RECORDS, caged=Cage(), shown_rows=shown_rows,
            visible=lambda topic: site.user.rights.sees(TOPIC, topic),
        )  # fmt: skip
    except TableError as error:
        raise ConsoleError(str(error)) from error
    shown = table.slice(0, MAX_SQL_ROWS)
    offsets: dict[str, list[str]] = {}
    for where, end in sorted(ends.items()):
        offsets.setdefault(where.topic, []).append(str(end))
    try:
        rows = [tuple(row) for row in zip(*(column.to_pylist() for column in shown.columns), strict=True)]
    except (OverflowError, ValueError) as error:
        raise ConsoleError(f"The answer has a value that cannot be shown ({error}); cast it to text.") from error
    return QueryResult(
        list(table.column_names),
        rows,
        table.num_rows > MAX_SQL_ROWS,
        {topic: ", ".join(parts) for topic, parts in offsets.items()},
    )
