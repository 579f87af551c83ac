"""What a person sees while an example works: the steps with their seconds, the queries of Spark, the results.

On a terminal the view moves four times a second, also while Spark starts. Elsewhere each step is a line when the step ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ottla.examples.catalogue import Panel

if TYPE_CHECKING:
    from ottla.pipelines.run import PipelineRun

BAR = 12
NAME = 24
_SHARE = 0.1
"""Of the time, at most, for reading results that are shown while the pipeline works."""


@dataclass(slots=True)
class ProgressStage:
    text: str
    began: float
    note: str = ""
    seconds: float | None = None
    done: Callable[[], tuple[int, int]] | None = None
    """How many of how many, for a bar."""

    def line(self, now: float) -> str:
        seconds = now - self.began if self.seconds is None else self.seconds
        return f"{self.text:<22} {seconds:>6.1f} s  {self.note}".rstrip()


@dataclass(slots=True)
class Progress:
    console: Console
    title: str
    panels: Callable[[], Sequence[Panel]] | None = None
    stages: list[ProgressStage] = field(default_factory=list)
    shown_panels: Sequence[Panel] = ()
    _queries: list[dict[str, Any]] = field(default_factory=list)
    _live: Live | None = None
    _panels_at: float = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self.render, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self.console.print(self.render())

    @contextmanager
    def stage(self, text: str, done: Callable[[], tuple[int, int]] | None = None) -> Iterator[ProgressStage]:
        stage = ProgressStage(text, time.perf_counter(), done=done)
        self.stages.append(stage)
        yield stage
        stage.seconds = time.perf_counter() - stage.began
        self._queries = []
        if self._live is None:
            self.console.print(stage.line(0), markup=False, highlight=False, soft_wrap=True)

    def on_queries(self, run: PipelineRun) -> None:
        """The callback of a run: takes over the progress of its queries, and now and then the results."""
        from ottla.pipelines.status import query_status

        self._queries = [query_status(running) for running in run.running]
        began = time.perf_counter()
        if self._live is not None and self.panels is not None and began >= self._panels_at:
            self.shown_panels = self.panels()
            ended = time.perf_counter()
            self._panels_at = ended + max(1.0, (ended - began) / _SHARE)

    def render(self) -> RenderableType:
        now = time.perf_counter()
        lines: list[RenderableType] = [Text(self.title, style="bold")]
        for stage in list(self.stages):
            if stage.seconds is not None:
                lines.append(Text(f"  {stage.line(now)}"))  # as wide as a spinner
                continue
            lines.append(Spinner("line", stage.line(now)))
            if stage.done is not None:
                count, total = stage.done()
                lines.append(_bar(count, total))
        if self._queries:
            lines.append(query_table(self._queries))
        return Group(*lines, *(panel_table(panel) for panel in self.shown_panels if panel.rows))


def _bar(count: int, total: int) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=total, completed=count, width=40), f"{count:,} of {total:,}")
    return row


def query_table(queries: Sequence[dict[str, Any]]) -> Table:
    """At most 80 columns: a long name is cut, and numbers stay whole."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("query", no_wrap=True, max_width=NAME)
    for title in ("rows", "rows/s", "left"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", width=BAR)
    for query in queries:
        numbers = [f"{query['rows']:,}", f"{query['rows_per_second']:,.0f}", f"{query['lag']:,}"]
        total = query["rows"] + query["lag"]
        state: RenderableType = escape(query["error"]) or ("waits" if query["batch"] < 0 else "done")
        if query["active"]:
            state = ProgressBar(total=total or None, completed=query["rows"], width=BAR)
        name = query["name"].partition("/")[2]
        table.add_row("dead letters" if "~" in name else escape(name), *numbers, state)
    return table


def panel_table(panel: Panel) -> RenderableType:
    """The title stands on a line of its own: a table is as wide as its columns, and its title wraps nowhere else."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in panel.columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", no_wrap=name[:1] == ">")
    for row in panel.rows:
        table.add_row(*(escape(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    return Group(Text(panel.title, style="bold"), table)
