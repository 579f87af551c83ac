"""The live display of a run: a line per query, a bar while it catches up, a summary at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from ottla.pipelines.status import pipeline_status

if TYPE_CHECKING:
    from ottla.pipelines.run import PipelineRun


def status_table(status: dict[str, Any]) -> Table:
    table = Table(title=f"{status['name']}: {status['state']}", title_justify="left")
    for name, justify in (
        ("query", "left"), ("rows", "right"), ("rows/s", "right"), ("lag", "right"), ("lag s", "right"),
        ("batch", "right"), ("ms", "right"), ("state rows", "right"), ("state MB", "right"), ("restarts", "right"), ("", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # the four words of rich's Literal
    for one in status.get("queries", []):
        total = one["rows"] + one["lag"]
        bar = (
            ProgressBar(total=total, completed=one["rows"], width=16) if one["active"] and one["lag"] else one["error"]
        )
        table.add_row(
            one["name"].partition("/")[2], f"{one['rows']:,}", f"{one['rows_per_second']:,.0f}", f"{one['lag']:,}",
            f"{one['lag_seconds']:,.1f}", str(one["batch"]), str(one["batch_ms"]), f"{one['state_rows']:,}",
            f"{one['state_bytes'] / 1e6:,.1f}", str(one["restarts"]), bar,
        )  # fmt: skip
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
