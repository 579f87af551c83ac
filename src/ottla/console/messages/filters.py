"""Which messages are wanted: by key, value, header or a path into JSON. Cheap tests come first.

Text is looked for in the bytes as they are, so nothing is decoded for it; only a path needs the decoded tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.messages.decode import Decoder

Predicate = Callable[[Any], bool]
"""On a confluent_kafka.Message."""

_STEP = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\d{1,9})\]|\[\"([^\"]+)\"\]")
_CONDITION = re.compile(r'\s*\$(?P<path>(?:\["[^"]*"\]|\[(?!")|[^=!<>~\s\[])*)\s*(?P<test>==|!=|>=|<=|=|<|>|~)?')
"""Each character can be matched in one way only: a page may ask for any condition, and the loop reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    key: str = ""
    value: str = ""
    header: str = ""
    """name or name=text"""
    path: str = ""
    """$.user.id == 7, $.tags[0] = "a", $.name ~ part, $.error (exists)"""

    @property
    def empty(self) -> bool:
        return not (self.key or self.value or self.header or self.path)

    def predicate(self, value_decoder: Decoder) -> Predicate:
        tests: list[Predicate] = []
        if self.key:
            tests.append(_contains(self.key, lambda message: message.key()))
        if self.value:
            tests.append(_contains(self.value, lambda message: message.value()))
        if self.header:
            tests.append(_header(self.header))
        if self.path:
            tests.append(_path(self.path, value_decoder))
        if len(tests) == 1:
            return tests[0]
        return lambda message: all(test(message) for test in tests)


def _contains(text: str, part: Callable[[Any], bytes | None]) -> Predicate:
    searched_bytes = text.encode()

    def test(message: Any) -> bool:
        data = part(message)
        return data is not None and searched_bytes in data

    return test


def _header(condition: str) -> Predicate:
    name, has_value, text = condition.partition("=")
    searched_bytes = text.encode()

    def test(message: Any) -> bool:
        return any(
            header_name == name and (not has_value or searched_bytes in (value or b""))
            for header_name, value in message.headers() or ()
        )

    return test


def _path(condition: str, decoder: Decoder) -> Predicate:
    steps, compare = parse_path(condition)

    def test(message: Any) -> bool:
        tree = decoder.decode(message.value()).tree
        for step in steps:
            try:
                tree = tree[step]
            except (KeyError, IndexError, TypeError):
                return False
        return compare(tree)

    return test


def parse_path(condition: str) -> tuple[list[str | int], Callable[[Any], bool]]:
    condition_match = _CONDITION.match(condition)
    operand = "" if condition_match is None else condition[condition_match.end() :].strip()
    if condition_match is None or (operand and condition_match["test"] is None):
        raise ConsoleError(f"{condition!r} is not a path: write $.user.id == 7, $.name ~ part or $.error")
    steps: list[str | int] = []
    text, position = condition_match["path"], 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ConsoleError(f"{condition!r}: cannot read the path at {text[position:]!r}")
        steps.append(int(step[2]) if step[2] is not None else step[1] or step[3])
        position = step.end()
    return steps, _comparison(condition_match["test"], operand)


def _comparison(test: str | None, wanted_text: str) -> Callable[[Any], bool]:
    if test is None:
        return lambda value: value is not None
    if test == "~":
        part = wanted_text.strip("\"'")
        return lambda value: part in str(value)
    operand = _literal(wanted_text)
    if test in ("=", "=="):
        return lambda value: _equal(value, operand)
    if test == "!=":
        return lambda value: not _equal(value, operand)
    if not isinstance(operand, int | float):
        raise ConsoleError(f"{test} compares numbers, and {wanted_text!r} is none")
    if test == ">":
        return lambda value: _is_number(value) and value > operand
    if test == "<":
        return lambda value: _is_number(value) and value < operand
    if test == ">=":
        return lambda value: _is_number(value) and value >= operand
    return lambda value: _is_number(value) and value <= operand


def _literal(text: str) -> Any:
    words: dict[str, Any] = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text.strip("\"'")


def _equal(value: Any, operand: Any) -> bool:
    if isinstance(value, bool) or isinstance(operand, bool):
        return value is operand
    return bool(value == operand)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
