"""Every `ottla ...` command in an error, a hint or a help text exists, with its options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ottla.cli.commands import ottla
from tests.support.prose import literals
from tests.test_docs import verb_problems

SOURCES = Path(__file__).resolve().parents[2] / "src/ottla"
COMMAND = re.compile(r"`(ottla [^`]+)`|\\((ottla [a-z][^()]*)\\)|^\\s+(ottla [a-z].*)$")


def problems_of(line: str) -> list[str]:
    return [
        f"{problem}: {line.strip()}"
        for groups in COMMAND.findall(line)
        for command in filter(None, groups)
        for problem in verb_problems(ottla, _words(command))
    ]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)[1:]
    except ValueError:
        return command.split()[1:]


def test_commands_of_texts_parse() -> None:
    texts = [
        (path, line)
        for path in sorted(SOURCES.rglob("*.py"))
        if "generated" not in path.parts
        for line in literals(path)
    ]
    assert sum("`ottla " in line for _, line in texts) > 30
    assert [f"{path.name}: {problem}" for path, line in texts for problem in problems_of(line)] == []


def test_a_wrong_command_is_found() -> None:
    assert problems_of("use `ottla topics list`") == ["no such verb topics: use `ottla topics list`"]
    assert problems_of("use `ottla topic list --nonsense` here") != []
    assert problems_of("use `ottla topic list --internal` here") == []
