"""Writes into docs/seeds.md which tests only `make soak` runs, from the marks of the tests: `python -m tools.seeds_docs`.

A test on that page gets `(soak)` behind its path, a file or a test with other parameters also `(in part soak)`. The rest
of the page is written by hand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/seeds.md"
WHOLE, PART, NONE = " (soak)", " (in part soak)", ""
_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)(?:::(?P<test>\w+))?`(?: \((?:in part )?soak\))?")


def page(text: str) -> str:
    """The page with the marks that the tests have now."""

    def marked(match: re.Match[str]) -> str:
        name = match["path"] + (f"::{match['test']}" if match["test"] else "")
        return f"`{name}`{mark_of((ROOT / match['path']).read_text(), match['test'])}"

    return _TEST.sub(marked, text)


def mark_of(source: str, test: str | None = None) -> str:
    """The mark of a test, or of all tests of a file."""
    marks = [mark for name, mark in _marks(ast.parse(source).body, Names({"soak"}, {"soak"})) if test in (None, name)]
    if marks and all(mark == WHOLE for mark in marks):
        return WHOLE
    return NONE if all(mark == NONE for mark in marks) else PART


class Names(NamedTuple):
    """Names in a module for a mark of whole tests, and for a mark that may be of some parameters only."""

    whole: set[str]
    any: set[str]


def _marks(body: list[ast.stmt], names: Names, *, whole: bool = False) -> Iterator[tuple[str, str]]:
    """Each test below a module or class with its mark. `whole`: the mark stands above that class."""
    for part in body:
        if isinstance(part, ast.Assign):
            targets = {target.id for target in part.targets if isinstance(target, ast.Name)}
            if _has(part.value, names.whole):
                whole = whole or "pytestmark" in targets
                names = Names(names.whole | targets, names.any | targets)
            elif _has(part.value, names.any, parameters=True):
                names = Names(names.whole, names.any | targets)
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            marked = whole or any(_has(decorator, names.whole) for decorator in part.decorator_list)
            in_part = any(_has(decorator, names.any, parameters=True) for decorator in part.decorator_list)
            if isinstance(part, ast.ClassDef):
                yield from _marks(part.body, names, whole=marked)
            elif part.name.startswith("test_"):
                yield part.name, WHOLE if marked else PART if in_part else NONE


def _has(node: ast.AST, names: set[str], *, parameters: bool = False) -> bool:
    """The mark stands in this expression. Marks inside `pytest.param(...)` count only with `parameters`."""
    if (
        not parameters
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "param"
    ):
        return False
    if isinstance(node, ast.Attribute) and node.attr == "soak":
        return True
    if isinstance(node, ast.Name):
        return node.id in names
    return any(_has(child, names, parameters=parameters) for child in ast.iter_child_nodes(node))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
