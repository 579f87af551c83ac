"""Times as Java's SimpleDateFormat prints them, for --date-format: the letters that a person uses there."""

from __future__ import annotations

import re
from datetime import datetime

_LETTERS = {
    "y": "%Y", "M": "%m", "d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "a": "%p", "D": "%j", "E": "%a",
    "Z": "%z", "z": "%Z",
}  # fmt: skip
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def java_moment(pattern: str, seconds: float) -> str:
    """ValueError with Java's words for a letter that means nothing."""
    moment = datetime.fromtimestamp(seconds).astimezone()
    text = ""
    for match in _PART.finditer(pattern):
        whole, quoted, letter = match[0], match[1], match[2]
        if quoted is not None:
            text += quoted.replace("''", "'") or "'"
        elif letter == "S":
            text += f"{moment.microsecond // 1000:0{len(whole)}d}"
        elif letter is None:
            text += whole
        elif letter not in _LETTERS:
            raise ValueError(f"Illegal pattern character '{letter}'")
        elif letter == "y" and len(whole) == 2:
            text += f"{moment:%y}"
        elif letter in "EM" and len(whole) > 2:
            long, short = {"E": ("%A", "%a"), "M": ("%B", "%b")}[letter]
            text += moment.strftime(long if len(whole) > 3 else short)
        elif letter in "MdHhmsD":
            text += str(int(moment.strftime(_LETTERS[letter]))).zfill(len(whole))
        else:
            text += moment.strftime(_LETTERS[letter])
    return text
