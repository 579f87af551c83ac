"""Rows as a table, JSON or YAML. Colours only on a terminal: click takes them out where there is none.

Names and records come from peers: no character of theirs steers the terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ottla.model.peer_text import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console

ENDLESS = 100_000
_GAP = "  "


def show(rows: Sequence[Mapping[str, Any]], output: str, columns: Sequence[str] = ()) -> None:
    """The columns of the first row, unless named; lists are joined with commas in a table. A table that is wider than the
    terminal becomes blocks.
    """
    if output != "table":
        show_tree([dict(row) for row in rows], output)
        return
    if not rows:
        click.echo("nothing to show", err=True)
        return
    names = list(columns or rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[index]) for row in cells)) for index, name in enumerate(names)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) > _screen_width():
        from ottla.cli.terminal.tables import print_blocks

        print_blocks(names, cells)
        return
    head = _GAP.join(f"{name.upper():<{width}}" for name, width in zip(names, widths, strict=True)).rstrip()
    click.echo(styled(head, bold=True))
    for row in cells:
        click.echo(_GAP.join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _screen_width() -> int:
    """Into a pipe or a file nothing is folded."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else ENDLESS


def report(text: str, output: str, facts: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """What a verb has done: a sentence, or as JSON and YAML the facts of that sentence."""
    if output == "table":
        click.echo(text)
    else:
        show_tree(facts if isinstance(facts, Mapping) else list(facts), output)


def show_tree(tree: Any, output: str) -> None:
    if output == "yaml":
        import yaml

        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
        if visible(text, lines=True) != text:  # YAML's own escapes: a program reads the same values
            text = yaml.safe_dump(tree, sort_keys=False)
        click.echo(text, nl=False)
    else:
        click.echo(json_text(tree, indent=2))


def json_text(tree: Any, indent: int | None = None) -> str:
    return visible_json(json.dumps(tree, indent=indent, ensure_ascii=False, default=str))


def for_terminal(text: str) -> str:
    """Text of a record: on a terminal without characters that steer the terminal, else as it is."""
    return visible(text, lines=True) if sys.stdout.isatty() else text


def console() -> Console:
    """For tables with lines around them. Into a pipe or a file nothing is cut or folded to fit a screen."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=ENDLESS)


def progress(length: int, label: str) -> Any:
    """A bar on standard error; nothing at all where that is no terminal."""
    stream = sys.stderr
    make: Any = click.progressbar  # its overloads do not fit a bar that is moved by hand
    return make(length=max(length, 1), label=label, file=stream, hidden=not stream.isatty())


def styled(text: str, **style: Any) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple, set)):
        return visible(",".join(map(str, value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return visible(str(value))
