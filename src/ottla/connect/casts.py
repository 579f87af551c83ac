"""Values from one type to another as Kafka Connect's Cast, MaskField and TimestampConverter do it. Pure.

ValueError where the value cannot be had in that type. Numbers are narrowed as Java narrows them.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from ottla.payloads.java_dates import DatePattern

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNITS = {"seconds": 1_000_000_000, "milliseconds": 1_000_000, "microseconds": 1000, "nanoseconds": 1}
TIME_TYPES = ("string", "unix", "Date", "Time", "Timestamp")
PRECISIONS = tuple(_UNITS)
_NOTHING: tuple[tuple[type, Callable[[], Any]], ...] = (
    (bool, bool), (int, int), (float, float), (Decimal, Decimal), (str, str), (list, list), (dict, dict),
    (datetime, lambda: datetime.fromtimestamp(0, UTC)), (date, lambda: date(1970, 1, 1)),
)  # fmt: skip
"""What is left of a masked value, by its type."""


def cast_value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    return CASTS[kind](value)


def _integer(kind: str) -> Callable[[Any], int]:
    bits = _BITS[kind]
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def cast(value: Any) -> int:
        if isinstance(value, str):
            number = int(value)
            if not least <= number <= most:
                raise ValueError(f"{value!r} is not a valid {kind}: it is out of range")
            return number
        if isinstance(value, float):  # Java: to an int (a long) that ends at its bounds, then narrowed
            wide = max(bits, 32)
            low, high = -(1 << wide - 1), (1 << wide - 1) - 1
            value = 0 if math.isnan(value) else max(low, min(high, int(value) if math.isfinite(value) else _end(value)))
        if not isinstance(value, int | Decimal):
            raise TypeError(f"a {type(value).__name__} is not a valid {kind}")
        return (int(value) - least) % (1 << bits) + least

    return cast


def _end(value: float) -> int:
    return (1 << 64) if value > 0 else -(1 << 64)


def _floating(value: Any) -> float:
    if not isinstance(value, int | float | str | Decimal):
        raise TypeError(f"a {type(value).__name__} is not a number")
    return float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if not isinstance(value, int | float | Decimal):
        raise TypeError(f"a {type(value).__name__} is not a boolean")
    return (int(value) if not isinstance(value, float) or math.isfinite(value) else value) != 0


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)


def _java_double(value: float) -> str:
    """As Double.toString writes it: with an exponent below a thousandth and from ten millions."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{Decimal(repr(value)):e}".partition("e")
    whole, _, fraction = digits.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}E{int(exponent)}"


CASTS: dict[str, Callable[[Any], Any]] = {
    **{kind: _integer(kind) for kind in _BITS},
    "float32": _floating,
    "float64": _floating,
    "boolean": _boolean,
    "string": _string,
}


def masked(value: Any, replacement: str | None) -> Any:
    """Nothing of the value is left but its type."""
    if value is None:
        return None
    if replacement is None:
        for kind, nothing in _NOTHING:
            if isinstance(value, kind):
                return nothing()
        raise TypeError(f"a {type(value).__name__} cannot be masked")
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError(f"a {type(value).__name__} cannot be masked with {replacement!r}")
    return type(value)(replacement)


def time_ms(value: Any, pattern: DatePattern | None, precision: str) -> int:
    """A time as milliseconds: text of the pattern, a number of the precision, or a time."""
    if isinstance(value, str) and pattern is not None:
        return pattern.read(value)
    if isinstance(value, datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return round(at.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * _UNITS[precision] // 1_000_000
    raise TypeError(f"a {type(value).__name__} is not a time; text needs a format")


def time_value(timestamp_ms: int, target: str, pattern: DatePattern | None, precision: str) -> Any:
    if target == "string" and pattern is not None:
        return pattern.write(timestamp_ms)
    if target == "unix":
        return timestamp_ms * 1_000_000 // _UNITS[precision]
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return at.date() if target == "Date" else at.time() if target == "Time" else at
