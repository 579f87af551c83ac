"""The live display of a run: a line per query, a bar while it catches up, a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from ottla.model.peer_text import visible
from ottla.pipelines.status import pipeline_status

if TYPE_CHECKING:
    from ottla.pipelines.run import PipelineRun


_ENDLESS = 100_000
"""Wider than every table."""
_LEAST_NAME, _BAR, _PADDING = 12, 16, 2


class _Column(NamedTuple):
    title: str
    text: Callable[[dict[str, Any]], str]
    only_if: str = ""
    last_to_stay: int = 0
    """A screen that is too narrow has the columns with the highest numbers: a column disappears, a number is never cut."""


_COLUMNS = (
    _Column("rows", lambda query: f"{query['rows']:,}", last_to_stay=9),
    _Column("rows/s", lambda query: f"{query['rows_per_second']:,.0f}", last_to_stay=6),
    _Column("lag", lambda query: f"{query['lag']:,}", last_to_stay=8),
    _Column("lag s", lambda query: f"{query['lag_seconds']:,.1f}", last_to_stay=7),
    _Column("batch", lambda query: str(query["batch"]), last_to_stay=3),
    _Column("ms", lambda query: f"{query['batch_ms']:,}", last_to_stay=4),
    _Column("state rows", lambda query: f"{query['state_rows']:,}", "state_rows", 5),
    _Column("MB", lambda query: f"{query['state_bytes'] / 1e6:,.1f}", "state_rows"),
    _Column("parts", lambda query: str(query.get("state_partitions") or ""), "state_partitions"),
    _Column("restarts", lambda query: str(query["restarts"]), "restarts", 2),
)


def status_table(status: dict[str, Any], width: int | None = None) -> Table:
    """State, restarts and errors have a column only where there are some. `width` leaves out columns until the rest fits."""
    queries = status.get("queries", [])
    shown = [column for column in _COLUMNS if not column.only_if or any(query.get(column.only_if) for query in queries)]
    while width is not None and queries and len(shown) > 1 and _least_width(queries, shown) > width:
        shown.remove(min(shown, key=lambda column: column.last_to_stay))
    return _table(status, shown)


def _least_width(queries: Sequence[dict[str, Any]], shown: Sequence[_Column]) -> int:
    """With the name of a query, a bar and an error as short as they may be."""
    numbers = [max(len(column.title), *(len(column.text(query)) for query in queries)) for column in shown]
    return _LEAST_NAME + _BAR + sum(numbers) + _PADDING * (len(shown) + 2)


def print_whole(console: Console, table: Table) -> None:
    """A table whose numbers must stay on one line. A narrow terminal wraps the lines, and cuts nothing."""
    least = console.measure(table, options=console.options.update(width=_ENDLESS)).maximum
    Console(width=max(console.width, least), file=console.file).print(table)


def _table(status: dict[str, Any], shown: list[_Column]) -> Table:
    queries = status.get("queries", [])
    table = Table(
        title=f"{status['name']}: {status.get('phase') or status['state']}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("query", overflow="ellipsis", min_width=_LEAST_NAME)
    for column in shown:
        table.add_column(column.title, justify="right", no_wrap=True)
    if any(query["error"] or (query["active"] and query["lag"]) for query in queries):
        table.add_column("", min_width=_BAR)
    for query in queries:
        cells: list[Any] = [query["name"].partition("/")[2], *[column.text(query) for column in shown]]
        if query["active"] and query["lag"]:
            cells.append(ProgressBar(total=query["rows"] + query["lag"], completed=query["rows"], width=_BAR))
        elif query["error"]:
            cells.append(escape(query["error"]))
        table.add_row(*cells)
    return table


def expectation_table(status: dict[str, Any]) -> Table | None:
    """The expectations of all queries with their counts since the start; None for a pipeline without expectations."""
    queries = status.get("queries", [])
    if not any(query.get("expectations") for query in queries):
        return None
    table = Table(title="expectations", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("query", "expectation", "on_fail"):
        table.add_column(title, no_wrap=title != "expectation")
    for title in ("passed", "failed"):
        table.add_column(title, justify="right", no_wrap=True)
    for query in queries:
        for expectation in query.get("expectations") or ():
            counts = [f"{expectation[count]:,}" for count in ("passed", "failed")]
            label = escape(visible(expectation["name"]))
            table.add_row(query["name"].partition("/")[2], label, expectation["on_fail"], *counts)
    return table


class Display:
    """Called after each look at the queries; shows at most four times a second."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if not quiet and console.is_terminal else None
        )
        self._shown = 0.0

    def __enter__(self) -> Display:  # noqa: PYI034 - a concrete class, never derived from
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, run: PipelineRun) -> None:
        if self._live is not None and time.monotonic() - self._shown > 0.25:
            self._shown = time.monotonic()
            table = status_table(pipeline_status(run, "running"), self._live.console.width)
            self._live.update(table, refresh=True)
