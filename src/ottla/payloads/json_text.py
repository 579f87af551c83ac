"""Foreign JSON under a limit of nesting, so that whoever walks, prints or checks the value next can recurse over it.

Python's parser has a limit of its own (RecursionError) that depends on how deep the caller stands; this one is a number.
"""

from __future__ import annotations

import json
from typing import Any

MAX_JSON_DEPTH = 200
"""Objects and arrays inside each other: less than the 255 of jsonschema-rs and a fifth of Python's recursion limit."""


def read_json(data: bytes | str) -> Any:
    """The value; ValueError of one line when it is no JSON, or nested too deep."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise _too_deep() from None
    brackets = (data.count("[") + data.count("{")) if isinstance(data, str) else (data.count(b"[") + data.count(b"{"))
    if brackets > MAX_JSON_DEPTH and deeper_than(value, MAX_JSON_DEPTH):
        raise _too_deep()
    return value


def deeper_than(value: Any, limit: int) -> bool:
    """Whether objects and arrays nest more than `limit` times; level by level, without recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return bool(level)


def _too_deep() -> ValueError:
    return ValueError(f"JSON nested more than {MAX_JSON_DEPTH} deep")
