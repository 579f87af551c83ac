"""Java's .properties format: comments, continuation lines, escapes, three separators; the last of duplicates wins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class MalformedEscape(ValueError):
    r"""A \u that is not followed by four hexadecimal digits."""


def parse_properties(text: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def format_property(key: str, value: str) -> str:
    """One line that `parse_properties` (and Java) reads back as the same pair."""
    return _escape(key, r"[=:#! \t\f]") + "=" + _escape(value, r"^[ \t\f]")


def _escape(text: str, special: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return re.sub(special, lambda match: "\\" + match[0], text)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, with continuations joined. A comment never continues."""
    joined = ""
    continuing = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not continuing and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        continuing = slashes % 2 == 1
        joined += line[:-1] if continuing else line
        if not continuing:
            if joined:
                yield joined
            joined = ""
    if joined:
        yield joined


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: the key ends at the first bare =, : or blank."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANK:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANK)
    if value[:1] in ("=", ":") and value:
        value = value[1:].lstrip(_BLANK)
    return line[:end], value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise MalformedEscape(f"malformed \\u escape in {text!r}; write four hexadecimal digits after \\u")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)
