"""Tables that lose nothing on a narrow terminal: no number is cut, no column disappears.

A table that does not fit becomes blocks: one line for each column of each row. Into a pipe or a file a table has any width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.terminal.output import ENDLESS, console

if TYPE_CHECKING:
    from rich.table import Table

_BORDERS = 3
"""Columns of the screen between two cells."""


def print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]], heading: str | None = None) -> None:
    screen = console()
    widths = [
        max([len(title), *(len(line) for row in rows for line in row[index].split("\n"))])
        for index, title in enumerate(titles)
    ]
    if sum(widths) + _BORDERS * len(titles) + 1 <= screen.width:
        screen.print(_table(titles, rows, heading))
        return
    if heading:
        screen.print(heading, markup=False, highlight=False)
    print_blocks(titles, rows)


def print_blocks(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    screen = console()
    margin = max(map(len, titles))
    for number, row in enumerate(rows, 1):
        screen.print(f"row {number}", markup=False, highlight=False, style="bold")
        for title, cell in zip(titles, row, strict=True):
            screen.print(f"{title:>{margin}}  {cell}", markup=False, highlight=False, soft_wrap=True)


def print_whole(table: Table) -> None:
    """A table whose numbers must stay on one line. A narrow terminal wraps the lines, and cuts nothing."""
    from rich.console import Console

    screen = console()
    least = screen.measure(table, options=screen.options.update(width=ENDLESS)).maximum
    Console(width=max(screen.width, least)).print(table)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], heading: str | None) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=None if heading is None else escape(heading))
    for title in titles:
        table.add_column(escape(title), no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table
