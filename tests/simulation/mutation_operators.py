"""The operators of the mutation tool: each changes one place of a function as a tired programmer might.

`sites` lists the places of a module in the order of its text; `mutated` carries one out. A place has an identity that
survives edits elsewhere: function, operator, the text of its line, and its number among such places.

What no checker can see is left out: log lines, metrics, texts of errors, annotations, type checks, caches.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
INVISIBLE = re.compile(r"\b(log|_log|logger|metrics|_metrics|tracer|stats|_cached\w*)\b|\.(inc|observe|labels)\(")
"""Statements with one of these words are left alone."""
INVISIBLE_FUNCTION = re.compile(r"__(repr|str|hash|init_subclass)__|.*(metric|_text$|describe)")
_TYPE_CHECKS = {"isinstance", "issubclass", "callable", "cast", "hasattr"}
_OFFSET = re.compile(r"(.*_)?(offset|epoch)")
_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_BIGGEST = 100
"""Greater numbers are limits and sizes."""


class Change(NamedTuple):
    operator: str
    node: ast.stmt | ast.expr
    """Where the change is."""
    carry_out: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Site:
    module: str
    """Its path below `src/ottla`."""
    function: str
    operator: str
    line: int
    digest: str
    """Of the text of the line."""
    number: int
    """Among the sites of this function with the same operator and text."""

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line}:{self.operator}" + (f"#{self.number + 1}" if self.number else "")

    @property
    def identity(self) -> str:
        """What stays when other lines change."""
        return f"{self.module}:{self.function}:{self.operator}:{self.digest}:{self.number}"


def digest_of(line: str) -> str:
    return hashlib.sha256(line.strip().encode()).hexdigest()[:12]


def sites(module: str, source: str) -> Iterator[tuple[Site, Change, ast.Module]]:
    """All places of a module, each with its change and the tree that the change changes."""
    tree = ast.parse(source)
    lines = source.splitlines()
    numbers: Counter[tuple[str, str, str]] = Counter()
    for name, function in _functions(tree):
        if INVISIBLE_FUNCTION.fullmatch(function.name):
            continue
        for change in _changes(function):
            digest = digest_of(lines[change.node.lineno - 1])
            key = (name, change.operator, digest)
            yield Site(module, name, change.operator, change.node.lineno, digest, numbers[key]), change, tree
            numbers[key] += 1


def mutated(module: str, source: str, identity: str) -> tuple[Site, ast.Module]:
    """The module with this one change. Raises LookupError if the place is gone."""
    for site, change, tree in sites(module, source):
        if site.identity == identity:
            change.carry_out()
            return site, ast.fix_missing_locations(tree)
    raise LookupError(f"{identity}: no such place any more")


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of the module and methods of its classes. Functions inside a function belong to that function."""
    pending: list[tuple[str, ast.stmt]] = [("", node) for node in tree.body]
    while pending:
        prefix, node = pending.pop(0)
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            pending = [(f"{prefix}{node.name}.", child) for child in node.body] + pending


def _changes(function: Function) -> Iterator[Change]:
    yield from _block(function, function.body, has_docstring=True)
    plain = function.returns is not None and ast.unparse(function.returns) == "None"
    body = [statement for statement in function.body if not _is_docstring(statement)]
    if plain and len(body) > 1 and not any(isinstance(node, ast.Yield) for node in ast.walk(function)):
        middle = body[len(body) // 2]
        at = function.body.index(middle)
        yield Change("returns_early", middle, lambda: function.body.insert(at, ast.copy_location(ast.Return(), middle)))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _block(function: Function, block: list[ast.stmt], *, has_docstring: bool = False) -> Iterator[Change]:
    for index, statement in enumerate(list(block)):
        if has_docstring and index == 0 and _is_docstring(statement):
            continue
        if not isinstance(statement, Function | ast.ClassDef) and not INVISIBLE.search(_head(statement)):
            yield from _statement(function, block, statement)
            yield from _expressions(statement)
        for inner in _inner_blocks(statement):
            yield from _block(function, inner)


def _head(statement: ast.stmt) -> str:
    """The statement without the blocks inside of it."""
    return " ".join(ast.unparse(part) for part in _parts(statement))


def _parts(statement: ast.stmt) -> list[ast.expr]:
    """The expressions that a statement evaluates itself; raised errors and annotations are texts."""
    if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
        return []
    parts: list[ast.expr] = []
    for name, value in ast.iter_fields(statement):
        if name in {"annotation", "type_comment"}:
            continue
        values = value if isinstance(value, list) else [value]
        parts += [item for item in values if isinstance(item, ast.expr)]
        parts += [item.context_expr for item in values if isinstance(item, ast.withitem)]
    return parts


def _inner_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            yield block
    for clause in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield clause.body


def _statement(function: Function, block: list[ast.stmt], statement: ast.stmt) -> Iterator[Change]:
    def drop() -> None:
        block[block.index(statement)] = ast.copy_location(ast.Pass(), statement)

    if isinstance(statement, ast.Expr):
        value = statement.value
        if isinstance(value, ast.Await):
            yield Change("drops_await", statement, drop)
        elif isinstance(value, ast.Call) and "super()" not in ast.unparse(value):
            yield Change("drops_call", statement, drop)
    elif isinstance(statement, ast.If) and not statement.orelse:
        if isinstance(statement.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            yield Change("drops_guard", statement, drop)
    elif isinstance(statement, ast.Assign | ast.AugAssign | ast.Delete) and function.name != "__init__":
        targets = [statement.target] if isinstance(statement, ast.AugAssign) else statement.targets
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield Change("keeps_old_value", statement, drop)


def _expressions(statement: ast.stmt) -> Iterator[Change]:
    if isinstance(statement, ast.If | ast.While):
        yield from _negation(statement)
    pending: list[ast.AST] = list(reversed(_parts(statement)))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _last_name(node.func) in _TYPE_CHECKS):
            continue
        if isinstance(node, ast.expr):
            yield from _expression(node)
        pending += reversed(list(ast.iter_child_nodes(node)))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _negation(node: ast.If | ast.While | ast.IfExp) -> Iterator[Change]:
    if not any(isinstance(part, ast.Call) and _last_name(part.func) in _TYPE_CHECKS for part in ast.walk(node.test)):
        yield Change("negates", node, lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)))


def _expression(node: ast.expr) -> Iterator[Change]:
    if isinstance(node, ast.IfExp):
        yield from _negation(node)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield Change("swaps_and_or", node, lambda: setattr(node, "op", other))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPPED:
        swapped = _SWAPPED[type(node.ops[0])]()
        yield Change("swaps_bound", node, lambda: setattr(node, "ops", [swapped]))
    elif isinstance(node, ast.Call):
        yield from _arguments(node)
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.value <= _BIGGEST:
        yield Change("off_by_one", node, lambda: setattr(node, "value", node.value + 1))


def _arguments(node: ast.Call) -> Iterator[Change]:
    """Offsets and epochs that are handed on: one more."""
    for index, argument in enumerate(node.args):
        if isinstance(argument, ast.Name | ast.Attribute) and _OFFSET.fullmatch(_last_name(argument)):
            yield Change("off_by_one", argument, _increase(node, index, argument))


def _increase(node: ast.Call, index: int, argument: ast.expr) -> Callable[[], None]:
    def increase() -> None:
        node.args[index] = ast.copy_location(ast.BinOp(argument, ast.Add(), ast.Constant(1)), argument)

    return increase
