"""JSON that a client sent, read under limits: depth, nodes, numbers that a double can hold, text that UTF-8 can."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from ottla.payloads.json_text import json_levels
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parsed import SchemaProblem

_MAX_DIGITS = 400
"""Of an integer. The largest double has 309."""


def load_json(text: str, budget: Budget, *, max_depth: int) -> Any:
    """SchemaProblem, one line, when it is not JSON or beyond a limit. Spends a step per node."""
    budget.read(text)
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_int=_integer, parse_float=_float)
    except (ValueError, RecursionError) as error:
        raise SchemaProblem(f"not JSON: {one_line(error)}") from error
    _check_depth(value, budget, max_depth)
    try:
        text.encode()
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise SchemaProblem("not JSON: a surrogate without its other half") from error
    return value


def dump_json(value: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def one_line(error: object) -> str:
    return " ".join(str(error)[:2000].split())[:500]


def _check_depth(value: Any, budget: Budget, max_depth: int) -> None:
    for depth, level in enumerate(json_levels(value)):
        budget.spend(len(level))
        if depth > max_depth:
            raise SchemaProblem(f"nested more than {max_depth} deep")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or abs(value := int(digits)) >= 1 << 1023:
        raise ValueError(f"an integer of {len(digits)} digits is too large")
    return value


def _float(digits: str) -> float:
    if len(digits) > 2 * _MAX_DIGITS or not math.isfinite(value := float(digits)):
        raise ValueError("a number is too large")
    return value
