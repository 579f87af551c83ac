r"""kcat's format strings: %t topic, %p partition, %o offset, %k key, %s or %v value, %h headers, %T timestamp, %K %S sizes, \n."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any

LETTERS = "tpokvsTKSVh%"


def compile_format(text: str) -> Callable[[Any, str, str], str]:
    """ValueError for a letter that means nothing."""
    plain = codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape") if "\\" in text else text
    pieces = re.split(r"%(.?)", plain, flags=re.DOTALL)
    for letter in pieces[1::2]:
        if not letter or letter not in LETTERS:
            letters = " ".join(f"%{letter}" for letter in LETTERS)
            raise ValueError(f"format {text!r}: %{letter} is not a format; formats are {letters}")

    def write(message: Any, key: str, value: str) -> str:
        return "".join(_part(piece, message, key, value) if index % 2 else piece for index, piece in enumerate(pieces))

    return write


def _part(letter: str, message: Any, key: str, value: str) -> str:
    if letter in "kvs":
        return key if letter == "k" else value
    if letter == "h":
        return ",".join(f"{name}={(data or b'').decode('utf-8', 'replace')}" for name, data in message.headers() or ())
    if letter in "KSV":
        data = message.key() if letter == "K" else message.value()
        return str(-1 if data is None else len(data))
    facts = {"t": message.topic, "p": message.partition, "o": message.offset}
    if letter in facts:
        return str(facts[letter]())
    return "%" if letter == "%" else str(message.timestamp()[1])
