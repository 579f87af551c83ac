"""Every command's help keeps its examples on lines of their own and fits a screen."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla

SCREEN_LINES = 50


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


@pytest.mark.parametrize("path", [(), *_commands(ottla)], ids=lambda path: " ".join(("ottla", *path)))
def test_help(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(ottla, [*path, "--help"], terminal_width=80)
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert "\\b" not in shown.output
    assert len(lines) <= SCREEN_LINES, f"{len(lines)} lines"


@pytest.mark.parametrize("name", ottla.list_commands(click.Context(ottla)))
def test_every_verb_shows_an_example(name: str) -> None:
    assert "Example" in CliRunner().invoke(ottla, [name, "--help"]).output
