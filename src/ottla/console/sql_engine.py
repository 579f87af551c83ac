"""A query of the SQL page: DuckDB over topics as `ottla.tables` reads them, in a process that may die."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.console.errors import ConsoleError, require_here
from ottla.console.messages.decode import Decoder
from ottla.console.messages.masked import Masker, masked_table
from ottla.console.settings import MAX_SQL_ROWS
from ottla.console.site import Site
from ottla.security.grants import TOPIC


@dataclass(frozen=True, slots=True)
class QueryResult:
    columns: list[str]
    rows: list[list[str | None]]
    more: bool
    offsets: dict[str, str]
    """Topic -> the end offsets that the answer is true at."""


def run_query(site: Site, query: str) -> QueryResult:
    """With the rights of the site's user, and its masks."""
    require_here("SQL over topics", "pyarrow", "duckdb")
    from ottla.tables.caged_query import QueryLimits, run_caged
    from ottla.tables.topics import TableError

    if not query.strip():
        raise ConsoleError("Write a query, such as: select * from my_topic limit 10")

    def shown_rows(topic: str, rows: Any) -> Any:
        mask = site.mask_of(topic)
        return rows if mask is None else masked_table(rows, Masker(mask, Decoder(site.registry)))

    try:
        result = run_caged(
            site.wire_properties, query, limits=QueryLimits(rows=MAX_SQL_ROWS), shown_rows=shown_rows,
            visible=lambda topic: site.user.rights.sees(TOPIC, topic),
        )  # fmt: skip
    except TableError as error:
        raise ConsoleError(str(error)) from error
    ends: dict[str, list[str]] = {}
    for where, end in sorted(result.offsets.items()):
        ends.setdefault(where.topic, []).append(str(end))
    return QueryResult(
        result.columns, result.rows, result.more, {topic: ", ".join(parts) for topic, parts in ends.items()}
    )
