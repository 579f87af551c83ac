"""RE2's syntax: an expression as a tree, or a PatternError in RE2's own words."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

_ASCII = 128
_ALL = (1 << _ASCII) - 1
_MAX_REPEAT = 1000
_MAX_DEPTH = 200


class PatternError(ValueError):
    """The expression is not valid; the text is RE2's description."""


class Characters(NamedTuple):
    mask: int


class Anchor(NamedTuple):
    kind: str


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Alternative(NamedTuple):
    options: tuple[Node, ...]


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | Anchor | Sequence | Alternative | Repeat


def parse(expression: str) -> Node:
    return _Parser(expression).parse()


def _mask(test: Callable[[str], bool]) -> int:
    return sum(1 << code for code in range(_ASCII) if test(chr(code)))


_DIGITS = _mask(str.isdigit)
_SPACES = _mask(lambda c: c in "\t\n\f\r ")
_WORDS = _mask(lambda c: c.isalnum() or c == "_")
_NEWLINE = 1 << ord("\n")
_PERL = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}
_POSIX = {
    "alnum": _mask(str.isalnum),
    "alpha": _mask(str.isalpha),
    "ascii": _ALL,
    "blank": _mask(lambda c: c in "\t "),
    "cntrl": _mask(lambda c: not c.isprintable()),
    "digit": _DIGITS,
    "graph": _mask(lambda c: c.isprintable() and c != " "),
    "lower": _mask(str.islower),
    "print": _mask(str.isprintable),
    "punct": _mask(lambda c: c.isprintable() and not c.isalnum() and c != " "),
    "space": _mask(str.isspace) & ~_mask(lambda c: c in "\x1c\x1d\x1e\x1f"),
    "upper": _mask(str.isupper),
    "word": _WORDS,
    "xdigit": _mask(lambda c: c in "0123456789abcdefABCDEF"),
}
_OTHER_SCRIPTS = frozenset(("Arabic", "Armenian", "Cyrillic", "Greek", "Hangul", "Han", "Hebrew", "Hiragana", "Thai"))
"""The Unicode classes that occur in expressions for topic names: they match no character of a topic name."""
_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ANCHORS = {"A": "begin", "z": "end", "b": "word", "B": "no word"}


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._fold = False
        self._dot_all = False
        self._depth = 0
        self._names: set[str] = set()

    def parse(self) -> Node:
        node = self._alternative()
        if self._pos < len(self._text):
            raise PatternError("regexp/syntax: internal error")  # RE2's words for a ) too many
        return node

    def _peek(self, ahead: int = 0) -> str:
        at = self._pos + ahead
        return self._text[at] if at < len(self._text) else ""

    def _next(self) -> str:
        character = self._peek()
        self._pos += 1
        return character

    def _skip(self, text: str) -> bool:
        if self._text.startswith(text, self._pos):
            self._pos += len(text)
            return True
        return False

    def _alternative(self) -> Node:
        options = [self._sequence()]
        while self._skip("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alternative(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._pos < len(self._text) and self._peek() not in "|)":
            if self._skip("\\Q"):
                parts += self._quoted()
                continue
            atom = self._atom()
            parts.append(self._repeated(atom))
        return Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        end = self._text.find("\\E", self._pos)
        quoted = self._text[self._pos :] if end < 0 else self._text[self._pos : end]
        self._pos = len(self._text) if end < 0 else end + 2
        return [self._literal(character) for character in quoted]

    def _repeated(self, atom: Node) -> Node:
        repeated = False
        while True:
            bounds = self._bounds()
            if bounds is None:
                return atom
            if repeated:
                raise PatternError("invalid nested repetition operator")
            self._skip("?")  # which of several matches comes first does not matter here
            atom = Repeat(atom, *bounds)
            repeated = True

    def _bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self._peek() in simple and self._peek():
            return simple[self._next()]
        return self._counted() if self._peek() == "{" else None

    def _counted(self) -> tuple[int, int | None] | None:
        """{2}, {2,} or {2,3}; anything else in braces is plain text."""
        end = self._text.find("}", self._pos)
        low, comma, high = self._text[self._pos + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > _MAX_REPEAT or (most is not None and (most > _MAX_REPEAT or most < least)):
            raise PatternError("invalid repeat count")
        self._pos = end + 1
        return least, most

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return Characters(self._class())
        if character == ".":
            return Characters(_ALL if self._dot_all else _ALL & ~_NEWLINE)
        if character in "^$":
            return Anchor("begin" if character == "^" else "end")
        if character in "*+?":
            raise PatternError("missing argument to repetition operator")
        if character == "\\":
            return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        return Characters(self._folded(_bit(ord(character))))

    def _folded(self, mask: int) -> int:
        if not self._fold:
            return mask
        for lower in range(ord("a"), ord("z") + 1):
            pair = 1 << lower | 1 << lower - 32
            if mask & pair:
                mask |= pair
        return mask

    def _group(self) -> Node:
        fold, dot_all = self._fold, self._dot_all
        if self._skip("?") and not self._open_group():
            return Sequence(())  # only flags, which hold until the enclosing group ends
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        node = self._alternative()
        if not self._skip(")"):
            raise PatternError("missing closing )")
        self._depth -= 1
        self._fold, self._dot_all = fold, dot_all
        return node

    def _open_group(self) -> bool:
        """After "(?": a name, or flags; False when the group is flags alone."""
        if self._skip("P<") or (self._peek() == "<" and self._peek(1) not in ("=", "!") and self._skip("<")):
            name, bracket, _ = self._text[self._pos :].partition(">")
            if not bracket or not name.replace("_", "a").isalnum() or not name.isascii():
                raise PatternError("invalid named capture")
            if name in self._names:
                raise PatternError("duplicate capture group name")
            self._names.add(name)
            self._pos += len(name) + 1
            return True
        return self._flags()

    def _flags(self) -> bool:
        value, any_flag = True, False
        while self._pos < len(self._text):
            flag = self._next()
            if flag in ":)" and (any_flag or (value and flag == ":")):
                return flag == ":"
            if flag == "-" and value:
                value, any_flag = False, False
                continue
            if flag == "i":
                self._fold = value
            elif flag == "s":
                self._dot_all = value
            elif flag not in "mU":
                raise PatternError("invalid or unsupported Perl syntax")
            any_flag = True
        raise PatternError("invalid or unsupported Perl syntax")

    # Escapes and classes

    def _escape(self) -> Node:
        if self._peek() in _ANCHORS and self._peek():
            return Anchor(_ANCHORS[self._next()])
        return Characters(self._folded(self._escaped_mask()))

    def _escaped_mask(self) -> int:
        """After a backslash: a class, or one character."""
        character = self._next()
        if not character:
            raise PatternError("trailing backslash at end of expression")
        if character.lower() in _PERL:
            mask = _PERL[character.lower()]
            return _ALL & ~mask if character.isupper() else mask
        if character in "pP":
            mask = self._unicode()
            return _ALL & ~mask if character == "P" else mask
        if character == "x":
            return _bit(self._hex())
        if character in "01234567":
            return _bit(self._octal(character))
        if character in _ESCAPES:
            return 1 << _ESCAPES[character]
        if character.isascii() and not character.isalnum():
            return _bit(ord(character))
        raise PatternError("invalid escape sequence")

    def _unicode(self) -> int:
        name, end = self._peek(), self._pos + 1
        if name == "{":
            close = self._text.find("}", self._pos)
            if close < 0:
                raise PatternError("invalid character class range")
            name, end = self._text[self._pos + 1 : close], close + 1
        negated = name.startswith("^")
        name = name.lstrip("^")
        self._pos = end
        categories = {unicodedata.category(chr(code)) for code in range(_ASCII * 8)}
        if name == "Latin":
            mask = _POSIX["alpha"]
        elif name == "Any":
            mask = _ALL
        elif name in _OTHER_SCRIPTS:
            mask = 0
        elif any(category.startswith(name) for category in categories) and name:
            mask = _mask(lambda c: unicodedata.category(c).startswith(name))
        else:
            raise PatternError("invalid character class range")
        return _ALL & ~mask if negated else mask

    def _hex(self) -> int:
        if self._skip("{"):
            digits, brace, _ = self._text[self._pos :].partition("}")
            self._pos += len(digits) + 1
        else:
            digits, brace = self._text[self._pos : self._pos + 2], "}"
            self._pos += 2
        try:
            code = int(digits, 16) if brace and len(digits) >= 1 + (brace != "}") else -1
        except ValueError:
            code = -1
        if not 0 <= code <= 0x10FFFF:
            raise PatternError("invalid escape sequence")
        return code

    def _octal(self, first: str) -> int:
        if first != "0" and (not self._peek() or self._peek() not in "01234567"):
            raise PatternError("invalid escape sequence")  # a back reference
        digits = first
        while len(digits) < 3 and self._peek() and self._peek() in "01234567":
            digits += self._next()
        return int(digits, 8)

    def _class(self) -> int:
        negated = self._skip("^")
        mask, first = 0, True
        while True:
            if not self._peek():
                raise PatternError("missing closing ]")
            if self._peek() == "]" and not first:
                self._pos += 1
                break
            first = False
            mask |= self._class_item()
        mask = self._folded(mask)
        return _ALL & ~mask if negated else mask

    def _class_item(self) -> int:
        if self._peek() == "[" and self._peek(1) == ":":
            end = self._text.find(":]", self._pos + 2)
            if end >= 0:
                return self._posix(end)
        low = self._class_character()
        if low is None:
            return self._escaped_mask()
        if self._peek() != "-" or self._peek(1) in ("]", ""):
            return _bit(low)
        self._pos += 1
        high = self._class_character()
        if high is None:
            raise PatternError("invalid escape sequence")
        if high < low:
            raise PatternError("invalid character class range")
        return sum(1 << code for code in range(low, min(high + 1, _ASCII)))

    def _posix(self, end: int) -> int:
        name = self._text[self._pos + 2 : end]
        negated = name.startswith("^")
        mask = _POSIX.get(name.lstrip("^"))
        if mask is None:
            raise PatternError("invalid character class range")
        self._pos = end + 2
        return _ALL & ~mask if negated else mask

    def _class_character(self) -> int | None:
        """One character of a class; None, behind its backslash, when it is an escaped class."""
        character = self._next()
        if not character:
            raise PatternError("missing closing ]")
        if character != "\\":
            return ord(character)
        if self._peek() and self._peek() in "dDsSwWpP":
            return None
        mask = self._escaped_mask()
        return mask.bit_length() - 1 if mask else _ASCII


def _bit(code: int) -> int:
    """The mask of one character; a character that no topic name can hold matches nothing."""
    return 1 << code if code < _ASCII else 0
