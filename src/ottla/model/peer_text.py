"""Texts that a peer has chosen, where they are kept or shown: client ids and group ids have up to 32 KB."""

from __future__ import annotations

import re

MAX_TEXT = 256
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that move the cursor, begin a terminal's escape sequence, or change the order of the text around them."""
_STEERING_BUT_LINES = re.compile(_STEERING.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def cut(text: str) -> str:
    """The text, or its first `MAX_TEXT` characters and how many there were."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


def visible(text: str, *, lines: bool = False) -> str:
    r"""The text for a terminal: a character that steers the terminal becomes its escape (`\x1b`). With `lines`, tabs and
    ends of lines stay.
    """
    return (_STEERING_BUT_LINES if lines else _STEERING).sub(_escape, text)


def visible_json(text: str) -> str:
    """A JSON text for a terminal. A program reads the same values from the text."""
    return _STEERING_BUT_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
