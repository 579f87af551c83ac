"""Foreign JSON under a limit of nesting, so that code that walks, prints or checks the value can recurse over it.

Python's parser has a limit of its own (RecursionError), which depends on the depth of the caller's stack; the limit
here is a fixed number.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

MAX_JSON_DEPTH = 200
"""Objects and arrays inside each other: less than the 255 of jsonschema-rs and a fifth of Python's recursion limit."""


def read_json(data: bytes | str) -> Any:
    """The value; ValueError of one line when it is no JSON, or nested too deep."""
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH and deeper_than(value, MAX_JSON_DEPTH):
        raise _too_deep()
    if "\\u" in text or (text is data and not text.isascii()):
        _check_surrogates(value)
    return value


def _check_surrogates(value: Any) -> None:
    """Half a character cannot be written as UTF-8: a page or a sink that shows the value would fail as a whole."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a surrogate without its other half") from None


def json_levels(value: Any) -> Iterator[list[Any]]:
    """The nodes of a JSON value level by level, the value itself first. No recursion: a caller may stop at any depth."""
    level = [value]
    while level:
        yield level
        level = [
            inner
            for node in level
            if isinstance(node, dict | list)
            for inner in (node.values() if isinstance(node, dict) else node)
        ]


def deeper_than(value: Any, limit: int) -> bool:
    """Whether objects and arrays nest more than `limit` times."""
    deepest = next(itertools.islice(json_levels(value), limit, None), [])
    return any(isinstance(node, dict | list) for node in deepest)


def _too_deep() -> ValueError:
    return ValueError(f"JSON nested more than {MAX_JSON_DEPTH} deep")
