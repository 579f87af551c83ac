"""The live display of a run: a line per query, a bar while it catches up, a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
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


class _Column(NamedTuple):
    title: str
    text: Callable[[dict[str, Any]], str]
    only_if: str = ""


_COLUMNS = (
    _Column("rows", lambda query: f"{query['rows']:,}"),
    _Column("rows/s", lambda query: f"{query['rows_per_second']:,.0f}"),
    _Column("lag", lambda query: f"{query['lag']:,}"),
    _Column("lag s", lambda query: f"{query['lag_seconds']:,.1f}"),
    _Column("batch", lambda query: str(query["batch"])),
    _Column("ms", lambda query: f"{query['batch_ms']:,}"),
    _Column("state rows", lambda query: f"{query['state_rows']:,}", "state_rows"),
    _Column("MB", lambda query: f"{query['state_bytes'] / 1e6:,.1f}", "state_rows"),
    _Column("parts", lambda query: str(query.get("state_partitions") or ""), "state_partitions"),
    _Column("restarts", lambda query: str(query["restarts"]), "restarts"),
)


def status_table(status: dict[str, Any]) -> Table:
    """Narrow enough for 80 columns; state, restarts and errors have a column only where there are some."""
    queries = status.get("queries", [])
    table = Table(title=f"{status['name']}: {status['state']}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("query", no_wrap=True, min_width=12)
    shown = [column for column in _COLUMNS if not column.only_if or any(query.get(column.only_if) for query in queries)]
    for column in shown:
        table.add_column(column.title, justify="right", no_wrap=True)
    if any(query["error"] or (query["active"] and query["lag"]) for query in queries):
        table.add_column("", min_width=16)
    for query in queries:
        cells: list[Any] = [query["name"].partition("/")[2], *[column.text(query) for column in shown]]
        if query["active"] and query["lag"]:
            cells.append(ProgressBar(total=query["rows"] + query["lag"], completed=query["rows"], width=16))
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
            self._live.update(status_table(pipeline_status(run, "running")), refresh=True)
