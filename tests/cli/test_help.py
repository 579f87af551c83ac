"""Every command's help keeps its examples on lines of their own, shows one, and fits a screen of 40 lines by 100."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from ottla.cli.commands import ottla
from ottla.cli.examples import EXAMPLES

SCREEN_LINES = 40
SCREEN_COLUMNS = 100


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


COMMANDS = list(_commands(ottla))


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=lambda path: " ".join(("ottla", *path)))
def test_help(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(ottla, [*path, "--help"], terminal_width=SCREEN_COLUMNS)
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert "\\b" not in shown.output
    assert len(lines) <= SCREEN_LINES, f"{len(lines)} lines"
    assert max(map(len, lines)) <= SCREEN_COLUMNS
    assert "Example" in shown.output
    calls = [line.strip() for line in lines if line.startswith(("    ", "  ottla "))]
    assert any(line.startswith("ottla ") for line in calls)


@pytest.mark.parametrize("path", sorted(EXAMPLES))
def test_examples_are_calls_of_their_command(path: str) -> None:
    """Click itself takes the words: an example with a flag that is gone fails here."""
    words = EXAMPLES[path].partition(" > ")[0].split()
    names = path.split()
    assert words[: len(names) + 1] == ["ottla", *names]
    assert tuple(names) in COMMANDS
    command: click.Command = ottla
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    _, left, _ = command.make_parser(click.Context(command)).parse_args(words[len(names) + 1 :])
    assert left == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    command: click.Command | None = ottla
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert [option.opts for option in options if not option.help] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_environment_variables_are_listed(path: tuple[str, ...]) -> None:
    command: click.Command | None = ottla
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    shown = " ".join(CliRunner().invoke(ottla, [*path, "--help"], terminal_width=SCREEN_COLUMNS).output.split())
    variables = [option.envvar for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert [name for name in variables if isinstance(name, str) and name not in shown] == []
    names = {name for option in command.params for name in option.opts}
    if "--command-config" in names and "--profile" in names:
        assert "OTTLA_BOOTSTRAP_SERVERS" in shown
        assert "OTTLA_PROFILE" in shown
