"""The names of Python's modules that Linux has and macOS lacks, read from the type stubs that come with mypy.

The stubs guard each name with `sys.platform`; here the guards are evaluated for both systems and the names compared.
"""

from __future__ import annotations

import ast
import functools
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mypy

STUBS = Path(mypy.__file__).parent / "typeshed/stdlib"
MODULES = (
    "_signal",
    "_socket",
    "errno",
    "fcntl",
    "mmap",
    "os",
    "posix",
    "resource",
    "select",
    "signal",
    "socket",
    "time",
)
_COMPARED = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
}


def names(module: str, platform: str) -> set[str]:
    """What the module has on that system, in the Python that runs this."""
    path = STUBS / f"{module}.pyi"
    if not path.exists():
        path = STUBS / module / "__init__.pyi"
    return set(_defined(ast.parse(path.read_text()).body, platform)) if path.exists() else set()


@functools.cache
def linux_only() -> dict[str, list[str]]:
    """Module -> its names that macOS lacks."""
    return {module: sorted(names(module, "linux") - names(module, "darwin")) for module in MODULES}


@functools.cache
def macos_only() -> dict[str, list[str]]:
    return {module: sorted(names(module, "darwin") - names(module, "linux")) for module in MODULES}


def _defined(body: list[ast.stmt], platform: str) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.If():
                yield from _defined(statement.body if _holds(statement.test, platform) else statement.orelse, platform)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom() | ast.Import():
                yield from (alias.asname or alias.name for alias in statement.names)


def _holds(test: ast.expr, platform: str) -> bool:
    match test:
        case ast.BoolOp(op=ast.And()):
            return all(_holds(part, platform) for part in test.values)
        case ast.BoolOp(op=ast.Or()):
            return any(_holds(part, platform) for part in test.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _holds(test.operand, platform)
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            known: dict[str, Any] = {"sys.platform": platform, "sys.version_info": sys.version_info}
            if ast.unparse(left) in known:
                return bool(_COMPARED[type(relation)](known[ast.unparse(left)], ast.literal_eval(right)))
    raise ValueError(f"a guard of the stubs that this module does not evaluate: {ast.unparse(test)}")
