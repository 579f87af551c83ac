"""Names: a variable is a noun of the domain, never a pronoun or participle, and no two public classes share a name.

Both tests carry a list of what is not mended yet. The lists only shrink: an entry that is clean must leave its list.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ottla"
VAGUE = {"found", "wanted", "each", "one", "given", "known", "asked", "rest", "told"}
NOT_CLEAN = {
    "log",
}
"""Packages that still bind vague names."""
SHARED = {
    "Broker",  # the node's parts, and what a test starts: `ottla.testing.Broker` is a public name
    "ConfigSource",
    "Logs",
    "Pace",
    "Work",
}
"""Names that public classes still share."""


@cache
def modules() -> dict[Path, ast.Module]:
    paths = (path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py")))
    return {path: ast.parse((SOURCE / path).read_text()) for path in paths if "generated" not in path.parts}


def names_bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    return []


def vague_names() -> dict[str, list[str]]:
    """By package, the places that bind a vague name."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, module in modules().items():
        for node in ast.walk(module):
            for name in names_bound(node):
                if name.strip("_") in VAGUE:
                    places[path.parts[0]].append(f"{path}:{getattr(node, 'lineno', 0)} {name}")
    return places


def shared_names() -> dict[str, list[str]]:
    """Names that two or more public classes have, with the modules of those classes."""
    owners: dict[str, list[str]] = defaultdict(list)
    for path, module in modules().items():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(str(path))
    return {name: paths for name, paths in owners.items() if len(paths) > 1}


def test_variables_of_clean_packages_are_nouns() -> None:
    assert {package: places for package, places in vague_names().items() if package not in NOT_CLEAN} == {}


def test_packages_that_are_clean_leave_the_list() -> None:
    assert sorted(set(NOT_CLEAN) - set(vague_names())) == []


def test_no_two_public_classes_share_a_name() -> None:
    assert {name: paths for name, paths in shared_names().items() if name not in SHARED} == {}


def test_class_names_that_are_unique_leave_the_list() -> None:
    assert sorted(set(SHARED) - set(shared_names())) == []
