"""Dead code: what src defines and only tests use, or nothing.

A name counts as used when any module of src, `tools`, `bench` or `examples`, a template or `pyproject.toml` reads the
name outside its own definition. Two definitions with one name hide each other: the check finds most, not all.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/ottla"
STATIC = SOURCE / "console/static"
PLAIN_DECORATORS = {
    "abstractmethod",
    "asynccontextmanager",
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",
    "final",
    "lru_cache",
    "overload",
    "override",
    "property",
    "runtime_checkable",
    "setter",
    "staticmethod",
    "total_ordering",
    "unique",
    "wraps",
}
"""A different decorator registers what it decorates: a verb, a rule, a route."""
TABLES = re.compile(r"Enum|IntEnum|IntFlag|StrEnum|\w*Settings|\w*Config")
"""Classes whose members are a table, mostly of Apache Kafka: all values, not only those that this program names."""
CALLED_BY_A_LIBRARY = {
    "DataSource",
    "H11Protocol",
    "HTTPRedirectHandler",
    "IntEnum",
    "StatefulProcessor",
    "api.DataSourceReader",
    "api.DataSourceStreamReader",
    "asyncio.Protocol",
    "click.Group",
    "h11.Connection",
}
"""Base classes whose methods a library calls."""
EXCEPTIONS = {
    "throttle_time_ms": "the Protocol of the generated responses, which encode the field",
    **dict.fromkeys(
        (
            "call_at",
            "call_exception_handler",
            "get_debug",
            "pause_reading",
            "resume_reading",
        ),
        "methods that asyncio calls on its loop and on its transports",
    ),
    "to_string": "a method that Starlette's converters of paths must have",
    "leader_of": "a public method of the test kit: docs/testing.md",
    "advance_watermark": "a public method of the test kit: docs/pipeline-testing.md",
    "pytest_addoption": "a hook that pytest calls",
    **dict.fromkeys(("setUpClass", "tearDown"), "methods that unittest calls"),
}
"""Names that no other code reads, with the reason."""
_FEW = 5
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    place: str
    name: str
    node: ast.stmt

    def is_used(self, used: Counter[str]) -> bool:
        """Outside its own definition: a function that only calls itself is dead."""
        total = used[self.name]
        if not 0 < total < _FEW or not isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return total > 0
        return total > sum(name == self.name for name in uses(self.node))


def uses(node: ast.AST) -> Iterator[str]:
    """The names that a piece of code reads, also those in its strings: `getattr`, entry points, type hints."""
    pending = [node]
    while pending:
        child = pending.pop()
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.Assign) and "__slots__" in _assigned(child):
            pending += [part for part in ast.walk(child.value) if isinstance(part, ast.Call)]
            continue
        if isinstance(child, ast.Name | ast.Attribute) and not isinstance(child.ctx, ast.Store):
            yield child.id if isinstance(child, ast.Name) else child.attr
        elif isinstance(child, ast.Constant) and isinstance(child.value, str) and " " not in child.value:
            yield from _WORD.findall(child.value)
        elif isinstance(child, ast.MatchClass):
            yield from child.kwd_attrs
        pending += ast.iter_child_nodes(child)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call | ast.Subscript):
        return _last_name(node.func if isinstance(node, ast.Call) else node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_registered(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(_last_name(decorator) not in PLAIN_DECORATORS for decorator in node.decorator_list)


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                yield part.id
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                yield f"self.{part.attr}"


def definitions(tree: ast.Module, place: str) -> Iterator[Definition]:
    """Functions, methods, classes, constants, fields and attributes of one module."""
    for node in tree.body:
        yield from _defined(node, place)
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            if any(TABLES.fullmatch(base) for base in (node.name, *bases)):
                members = [member for member in node.body if not isinstance(member, ast.Assign | ast.AnnAssign)]
            else:
                members = node.body
            for member in members:
                method = isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
                if not (method and bases & CALLED_BY_A_LIBRARY):
                    yield from _defined(member, place)
                for child in ast.walk(member) if method else ():
                    if isinstance(child, ast.Assign | ast.AnnAssign):
                        yield from (_definition(child, name, place) for name in _assigned(child) if "self." in name)


def _defined(node: ast.stmt, place: str) -> Iterator[Definition]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if not _is_registered(node):
            yield _definition(node, node.name, place)
    else:
        yield from (_definition(node, name, place) for name in _assigned(node))


def _definition(node: ast.stmt, name: str, place: str) -> Definition:
    name = name.removeprefix("self.")
    return Definition(place=f"{place}:{node.lineno} {name}", name=name, node=node)


def unused(defined: Iterable[Definition], used: Counter[str]) -> list[str]:
    private = re.compile(r"__\w+__|_+")
    return sorted(
        {
            definition.place
            for definition in defined
            if not private.fullmatch(definition.name) and not definition.is_used(used)
        }
    )


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py") if "generated" not in path.parts}


@cache
def all_uses() -> Counter[str]:
    used: Counter[str] = Counter()
    for tree in modules().values():
        used.update(uses(tree))
    for folder in ("tools", "bench", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            used.update(uses(ast.parse(path.read_text())))
    for path in (*SOURCE.rglob("*.html"), *SOURCE.rglob("*.js"), ROOT / "pyproject.toml"):
        used.update(_WORD.findall(path.read_text()))
    return used


def test_everything_is_used() -> None:
    places = {str(path.relative_to(SOURCE)): tree for path, tree in modules().items()}
    defined = [definition for place, tree in places.items() for definition in definitions(tree, place)]
    assert len(defined) > 10_000
    assert unused((definition for definition in defined if definition.name not in EXCEPTIONS), all_uses()) == []


def test_exceptions_are_needed() -> None:
    defined = (definition for path, tree in modules().items() for definition in definitions(tree, str(path)))
    dead = unused((definition for definition in defined if definition.name in EXCEPTIONS), all_uses())
    assert {place.split()[-1] for place in dead} == set(EXCEPTIONS)


def test_planted_code_is_found() -> None:
    tree = ast.parse(
        """
LIMIT = 3
LIMIT_OF_NOTHING = 4

class Reader(api.DataSourceReader):
    def pushFilters(self): return LIMIT

class Kind(IntEnum):
    KAFKAS = 1

@group.command("show")
def show(): Store().get()

class Store:
    unread: int
    __slots__ = ("_written",)

    def get(self): self._written = 1

    def put(self): return self.put()

def again(): again()

def hidden(): return getattr(Store, "by_name")

def by_name(): "again"
"""
    )
    dead = unused(definitions(tree, "planted.py"), Counter(uses(tree)) + Counter(["Kind", "Reader", "hidden"]))
    names = ["LIMIT_OF_NOTHING", "_written", "again", "put", "unread"]
    assert sorted(place.split()[-1] for place in dead) == names


def test_styles_scripts_and_templates_are_used() -> None:
    templates = {path.name: path.read_text() for path in (SOURCE / "console").rglob("*.html")}
    python = "".join(path.read_text() for path in (SOURCE / "console").rglob("*.py"))
    scripts = (STATIC / "app.js").read_text()
    pages = "".join(templates.values())
    styles = re.sub(r"/\*.*?\*/", "", (STATIC / "app.css").read_text(), flags=re.DOTALL)
    selectors = {
        name for rule in re.findall(r"([^{}]+)\{", styles) for name in re.findall(r"[.#]([A-Za-z][\w-]*)", rule)
    }
    text = pages + python + scripts
    words = set(re.findall(r"[A-Za-z][\w-]*", text))
    computed = re.findall(r"\b([a-z]+-)\{\{", text)  # class="diff-{{ kind }}"
    assert [name for name in selectors - words if not name.startswith(tuple(computed))] == []
    assert [name for name in re.findall(r"(--[\w-]+)\s*:", styles) if f"var({name}" not in styles + text] == []
    functions = re.findall(r"\bfunction (\w+)|\bconst (\w+) = \(", scripts)
    assert [name for pair in functions for name in pair if name and len(re.findall(rf"\b{name}\b", text)) < 2] == []
    macros = re.findall(r"\bmacro (\w+)", pages)
    assert [name for name in macros if len(re.findall(rf"\b{name}\b", pages)) < 2] == []
    unreached = [name for name in templates if name not in python and name not in pages]
    assert unreached == []
