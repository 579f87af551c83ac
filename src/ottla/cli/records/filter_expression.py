"""Filters on records, such as `value.amount > 100 and key == "de"`: Python's own grammar, nothing of its power.

Only the syntax below is walked, over plain data; there are no attributes of objects, no calls but the few named here, and
the text has a limit. A record whose data does not fit (a missing field, text compared with a number) does not match.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_LENGTH = 2000
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "lower": lambda text: str(text).lower(),
    "upper": lambda text: str(text).upper(),
    "contains": lambda text, part: part in text,
    "startswith": lambda text, part: str(text).startswith(part),
    "endswith": lambda text, part: str(text).endswith(part),
    "matches": lambda text, pattern: re.search(pattern, str(text)) is not None,
    "int": int,
    "float": float,
    "str": str,
}
NAMES = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")


class BadFilter(ValueError):
    """An expression that is not one of ours."""


class _Missing(Exception):
    """A field that this record does not have."""


def compile_filter(text: str) -> Callable[[Mapping[str, Any]], bool]:
    if len(text) > MAX_LENGTH:
        raise BadFilter(f"a filter has at most {MAX_LENGTH} characters")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, ValueError) as reason:
        raise BadFilter(f"filter {text!r}: {getattr(reason, 'msg', reason)}") from None
    _check(tree)

    def matches(record: Mapping[str, Any]) -> bool:
        try:
            return bool(_value(tree, record))
        except (_Missing, TypeError, KeyError, IndexError, ValueError, ZeroDivisionError, OverflowError, re.error):
            return False

    return matches


_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.BinOp, ast.Constant, ast.Name,
    ast.Load, ast.Attribute, ast.Subscript, ast.List, ast.Tuple, ast.Call, *_COMPARE, *_ARITHMETIC,
)  # fmt: skip


def _check(tree: ast.expr) -> None:
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise BadFilter(f"a filter does not support {type(node).__name__}")
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords
        ):
            raise BadFilter(f"a filter can call only {', '.join(sorted(_FUNCTIONS))}")
        if (
            isinstance(node, ast.Name)
            and node.id not in NAMES
            and node.id not in _FUNCTIONS
            and node.id not in {"null", "true", "false"}
        ):
            raise BadFilter(f"a filter has no name {node.id!r}; names are {', '.join(NAMES)}")


def _value(node: ast.expr, record: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        literals = {"null": None, "true": True, "false": False}
        return literals[node.id] if node.id in literals else record[node.id]
    if isinstance(node, ast.BoolOp):
        choose = any if isinstance(node.op, ast.Or) else all
        return choose(bool(_truth(part, record)) for part in node.values)
    if isinstance(node, ast.UnaryOp):
        return not _truth(node.operand, record) if isinstance(node.op, ast.Not) else -_value(node.operand, record)
    if isinstance(node, ast.Compare):
        return _compared(node, record)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, record), _value(node.right, record)
        if isinstance(node.op, ast.Mult) and not (_number(left) and _number(right)):
            raise TypeError("only numbers are multiplied")
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Attribute):
        return _field(_value(node.value, record), node.attr)
    if isinstance(node, ast.Subscript):
        return _field(_value(node.value, record), _value(node.slice, record))
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(part, record) for part in node.elts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_value(part, record) for part in node.args))
    raise BadFilter(f"a filter does not support {type(node).__name__}")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _truth(node: ast.expr, record: Mapping[str, Any]) -> Any:
    """One side of `or` may speak of a field that is not there: then it is false, and the other side decides."""
    try:
        return _value(node, record)
    except (_Missing, TypeError, KeyError, IndexError):
        return False


def _compared(node: ast.Compare, record: Mapping[str, Any]) -> bool:
    left = _value(node.left, record)
    for operation, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, record)
        if not _COMPARE[type(operation)](left, right):
            return False
        left = right
    return True


def _field(holder: Any, name: Any) -> Any:
    if isinstance(holder, Mapping):
        if name in holder:
            return holder[name]
    elif isinstance(holder, (list, str)) and isinstance(name, int):
        return holder[name]
    raise _Missing(name)
