"""From text to typed values and back, by the rules of Kafka's parser (which are Java's).

`parse` is the one way a value from outside becomes typed; it raises `BadValue`, whose text is Kafka's. A class name is
kept as text: nothing is loaded here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .checks import ValueRefusal
from .settings import Kind, Setting

_WHITE: Final = "".join(map(chr, range(0x21)))
"""What Java's trim() takes off."""
_COMMA: Final = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = r"([+-]?(?:NaN|Infinity))|([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
_HEXADECIMAL: Final = r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?"
_BITS: Final = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
_PLAIN_LOW: Final = 1e-3
_PLAIN_HIGH: Final = 1e7
"""Java prints a double between these plainly and any other with an exponent."""


class BadValue(ValueError):
    """A value that Kafka would refuse; the text is Kafka's own."""

    def __init__(self, name: str, shown: str, refusal: ValueRefusal) -> None:
        self.name = name
        self.why = refusal.why
        whole = f"Invalid value {shown} for configuration {name}: {refusal.why}"
        super().__init__(refusal.why if refusal.whole else whole)


def parse(setting: Setting, text: str) -> Any:
    """The typed and checked value of `text`."""
    value = parse_kind(setting.name, setting.kind, text)
    check = setting.check
    if check is None:
        return value
    if check.unique:
        value = tuple(dict.fromkeys(value))
    refusal = check(setting.name, value)
    if refusal is not None:
        raise BadValue(setting.name, refusal.value or shown(setting.kind, value), refusal)
    return value


def parse_kind(name: str, kind: Kind, text: str) -> Any:
    trimmed = text.strip(_WHITE)
    if kind in _BITS:
        number = int(trimmed) if _INTEGER.fullmatch(trimmed) else None
        half = 1 << (_BITS[kind] - 1)
        if number is None or not -half <= number < half:
            raise BadValue(name, text, ValueRefusal(f"Not a number of type {kind.name}"))
        return number
    if kind is Kind.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise BadValue(name, text, ValueRefusal("Expected value to be either true or false"))
        return trimmed.lower() == "true"
    if kind is Kind.DOUBLE:
        return _double(name, text, trimmed)
    if kind is Kind.LIST:
        return tuple(_COMMA.split(trimmed)) if trimmed else ()
    return trimmed


def _double(name: str, text: str, trimmed: str) -> float:
    if match := re.fullmatch(_DECIMAL, trimmed):
        return float(match[1] or match[2])
    if match := re.fullmatch(_HEXADECIMAL, trimmed):
        return float.fromhex(match[1])
    raise BadValue(name, text, ValueRefusal("Not a number of type DOUBLE"))


def render(kind: Kind, value: Any) -> str | None:
    """The text of a typed value as DescribeConfigs shows it."""
    if value is None:
        return None
    if kind is Kind.BOOLEAN:
        return "true" if value else "false"
    if kind is Kind.DOUBLE:
        return _java_double(value)
    if kind is Kind.LIST:
        return ",".join(value)
    return str(value)


def shown(kind: Kind, value: Any) -> str:
    """The value inside an error message: Java prints a list in brackets; a password is never shown."""
    if kind is Kind.PASSWORD:
        return "[hidden]"
    return f"[{', '.join(value)}]" if kind is Kind.LIST else str(render(kind, value))


def _java_double(value: float) -> str:
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_LOW <= abs(value) < _PLAIN_HIGH:
        return repr(float(value))
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    zeros = len(whole + fraction) - len(digits)
    power = int(exponent or 0) + len(whole) - 1 - zeros
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{power}"
