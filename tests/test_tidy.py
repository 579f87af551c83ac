"""A linter that is a test: the house rules that ruff, mypy and import-linter do not know."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "src/ottla/protocol/generated"
MAX_LINES = 500
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
BROAD = {"Exception", "BaseException"}
# Spelled in pieces, so that this file passes its own check. Local addresses and documentation hosts are no registries.
MACHINE_PATHS = re.compile(r"(?<![\w.~$}>-])/(?:wo" r"rk|ro" r"ot|ho" r"me)/\w")
REGISTRY_HOSTS = re.compile(
    r"(?i)(?:py"
    r"pi\.(?:org|python)|files\.python"
    r"hosted|repo1?\.maven|maven\.(?:org|apache)|"
    r"registry\.npm"
    r"js|deb\.deb"
    r"ian|artifact"
    r"ory|nex"
    r"us\.|--(?:extra-)?index"
    r"-url |--find"
    r"-links )"
)


def tracked(*patterns: str) -> list[Path]:
    """Tracked and new files (not ignored ones) that exist."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in sorted(set(listed.splitlines())) if (path := ROOT / name).is_file()]


def source_files() -> list[Path]:
    return [path for path in tracked("src/*.py") if GENERATED not in path.parents]


def python_files() -> list[Path]:
    return [path for path in tracked("*.py") if GENERATED not in path.parents]


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def found(path: Path, line: int, what: str) -> str:
    return f"{path.relative_to(ROOT)}:{line}: {what}"


def test_there_is_something_to_check() -> None:
    assert len(source_files()) > 10


def test_nothing_strange_lies_at_the_top() -> None:
    """A server that is started in the checkout leaves its data there, and `git add -A` takes them along."""
    known = {".ci", ".github", "bench", "deploy", "docs", "examples", "src", "tests", "tools"}
    names = {path.relative_to(ROOT).parts[0] for path in tracked() if path.parent != ROOT}
    assert names - known == set()


def test_no_file_is_too_long() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in source_files()}
    assert [found(path, size, "lines") for path, size in sizes.items() if size > MAX_LINES] == []


def test_nothing_is_left_undone() -> None:
    undone = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|pragma: no cover")
    problems = [
        found(path, number, line.strip())
        for path in source_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        # Catching what uvloop raises for sendfile is not a stub.
        if undone.search(line) and not re.search(r"except [^:]*NotImplementedError", line)
    ]
    assert problems == []


def test_no_bare_assert_in_src() -> None:
    problems = [
        found(path, node.lineno, "assert: python -O strips it; raise with the facts")
        for path in source_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
    ]
    assert problems == []


def test_no_shielded_futures() -> None:
    """`ottla.runtime.shared_futures` has the reason."""
    problems = [
        found(path, number, line.strip())
        for path in source_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "asyncio.shield(" in line
    ]
    assert problems == []


def test_no_vague_module_names() -> None:
    vague = [path for path in source_files() if FORBIDDEN_NAMES & {path.stem, *path.relative_to(ROOT).parent.parts}]
    assert [str(path.relative_to(ROOT)) for path in vague] == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        path
        for path in source_files()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_no_machine_paths_or_registries() -> None:
    problems = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # golden bytes, plots
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATHS.search(line) or REGISTRY_HOSTS.search(line):
                problems.append(found(path, number, line.strip()[:120]))
    assert problems == []


def test_the_lock_has_hashes_and_no_addresses() -> None:
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-spark.lock"):
        text = (ROOT / name).read_text()
        pins = re.findall(r"^\S+==", text, re.MULTILINE)
        assert len(pins) > 5
        assert "://" not in text
        assert text.count("--hash=sha256:") >= len(pins)


def test_every_type_ignore_has_a_code_and_every_noqa_a_reason() -> None:
    problems = []
    for path in python_files():
        for number, comment in comments(path):
            if "type: ignore" in comment and not re.search(r"type: ignore\[[a-z-]+(, ?[a-z-]+)*\]", comment):
                problems.append(found(path, number, "type: ignore without a code"))
            if re.search(r"\bnoqa\b", comment) and not re.search(r"noqa: [A-Z]+\d+(, ?[A-Z]+\d+)* - \w", comment):
                problems.append(found(path, number, "noqa without a code and a reason (`noqa: X1 - why`)"))
    assert problems == []


def test_a_broad_except_says_why_it_is_a_supervisor() -> None:
    """`except Exception` belongs to the dispatcher and the task supervisors: each such line carries its reason."""
    problems = []
    for path in source_files():
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in BROAD)
            if broad and not re.search(r"# .*\w{3}", lines[node.lineno - 1]):
                problems.append(found(path, node.lineno, "broad except without a reason: catch what can happen"))
    assert problems == []


def falsy_classes(trees: dict[Path, ast.Module]) -> set[str]:
    """Classes whose objects may count as false: they have a length or say so themselves."""
    return {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(each, ast.FunctionDef) and each.name in {"__len__", "__bool__"} for each in node.body)
    }


def defaults_by_or(tree: ast.AST) -> Iterator[tuple[int, ast.expr, str]]:
    """`left or Class(...)`: the line, what stands on the left and the name of the class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and isinstance(node.values[-1], ast.Call):
            called = node.values[-1].func
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            if name.lstrip("_")[:1].isupper():
                yield node.lineno, node.values[-2], name


def test_no_default_takes_the_place_of_something_that_is_empty() -> None:
    """`pool or Pool()` throws away a pool that is empty: ask for None. So does a parameter whose class may get a length."""
    trees = {path: ast.parse(path.read_text()) for path in source_files()}
    falsy = falsy_classes(trees)
    wrong = []
    for path, tree in trees.items():
        wrong += [found(path, line, f"or {name}()") for line, _, name in defaults_by_or(tree) if name in falsy]
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                parameters = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
                wrong += [
                    found(path, line, f"{left.id} or {name}()")
                    for line, left, name in defaults_by_or(function)
                    if isinstance(left, ast.Name) and left.id in parameters
                ]
    assert wrong == []
