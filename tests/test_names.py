"""Names: a variable is a noun of the domain, never a pronoun or participle, and no two public classes share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ottla"
VAGUE = {"found", "wanted", "each", "one", "given", "known", "asked", "rest", "told"}
OBSCURE = {"Departed", "Lookout", "Misfits", "WalkThreads", "guard", "as_it_is", "unverified", "departed", "misfits"}
"""Names that readers had to look up; `VerificationGuard` and the like are Kafka's."""
SHARED = {
    "Broker": "the node's parts, and what a test starts: `ottla.testing.Broker` is a public name",
}
"""Names that public classes share, with the reason."""


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
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    return []


def vague_names() -> list[str]:
    """The places that bind a vague or obscure name."""
    return [
        f"{path}:{getattr(node, 'lineno', 0)} {name}"
        for path, module in modules().items()
        for node in ast.walk(module)
        for name in names_bound(node)
        if name.strip("_") in VAGUE | OBSCURE
    ]


def shared_names() -> dict[str, list[str]]:
    """Names that two or more public classes have, with the modules of those classes."""
    owners: dict[str, list[str]] = defaultdict(list)
    for path, module in modules().items():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(str(path))
    return {name: paths for name, paths in owners.items() if len(paths) > 1}


def test_variables_are_nouns() -> None:
    assert vague_names() == []


def test_no_two_public_classes_share_a_name() -> None:
    assert {name: paths for name, paths in shared_names().items() if name not in SHARED} == {}


def test_class_names_that_are_unique_leave_the_list() -> None:
    assert sorted(set(SHARED) - set(shared_names())) == []
