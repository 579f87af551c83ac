"""What is installed with Ottla is enough for what it imports: `pip install ottla` has no test tools to lean on."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules that run only in a program that has these: a session of Spark, a run of pytest.
HOSTED = {"pyspark": {"pipelines", "demo", "pyspark_ottla"}, "pytest": {"testing"}}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[ <>=!~;\\[]", one)[0].lower().replace("_", "-") for one in requirements}


def imports(path: Path) -> list[tuple[str, bool]]:
    """The packages that a module imports, and whether at once (not in a function, and not only for types)."""
    found: list[tuple[str, bool]] = []

    def walk(node: ast.AST, at_once: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name.split(".")[0], at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.level == 0 and child.module:
                found.append((child.module.split(".")[0], at_once))
            types_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            walk(child, at_once and not types_only and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    walk(ast.parse(path.read_text()), at_once=True)
    return found


def test_every_import_is_declared() -> None:
    core = names(PROJECT["dependencies"])
    extras = core | names([one for extra in ("spark", "otel") for one in PROJECT["optional-dependencies"][extra]])
    extras |= {"opentelemetry-api"}  # of opentelemetry-sdk
    owners = packages_distributions()
    problems = []
    paths = [path for path in sorted((ROOT / "src").rglob("*.py")) if "generated" not in path.parts]
    for path in paths:
        part = path.relative_to(ROOT / "src").parts
        for package, at_once in imports(path):
            if package in sys.stdlib_module_names or package in {"ottla", "pyspark_ottla"}:
                continue
            if set(part) & HOSTED.get(package, set()):
                continue
            allowed = core if at_once else extras
            if not {owner.lower().replace("_", "-") for owner in owners.get(package, [package])} & allowed:
                problems.append(f"{path.relative_to(ROOT)}: {package}")
    assert problems == []
