"""Values of a scenario: each kind of value is checked in one place, with its unit and its bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ottla.simulation.scenario.places import SectionPlace, nearest, shown
from ottla.simulation.scenario.plan import ACKS_ALL

_UNITS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}
_TIME = re.compile(r"([+-]?)(\d+(?:\.\d+)?)\s*([a-z]*)")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
MAX_LIST = 64

Reader = Callable[[SectionPlace, str, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioKey:
    """A key of a section: how its value is checked, the field that gets the value, and its line of documentation."""

    name: str
    field: str
    read: Reader
    accepts: str
    doc: str
    default: str = ""
    required: bool = False


def whole_number(low: int, high: int) -> Reader:
    def read(place: SectionPlace, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise place.error(f"{shown(value)} is not a whole number; write {key} = {low}", key)
        if not low <= value <= high:
            raise place.error(f"{value} is out of range; write a number from {low:,} to {high:,}", key)
        return value

    return read


def duration(low_ms: float, high_ms: float, *, signed: bool = False) -> Reader:
    """Milliseconds of a text with a unit."""

    def read(place: SectionPlace, key: str, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise place.error(f'{shown(value)} has no unit; write {key} = "{value}s" or {key} = "{value}ms"', key)
        match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or (match[1] and not signed):
            raise place.error(f'{shown(value)} is not a time; write a number and a unit: "250ms", "3s", "2m"', key)
        if match[3] not in _UNITS:
            raise place.error(f"{shown(value)}: unknown unit {shown(match[3])}; units are ms, s, m and h", key)
        milliseconds = round(float(match[2]) * _UNITS[match[3]], 3)
        if not low_ms <= milliseconds <= high_ms:
            raise place.error(
                f"{shown(value)} is out of range; write a time from {time_text(low_ms)} to {time_text(high_ms)}", key
            )
        return -milliseconds if match[1] == "-" else milliseconds

    return read


def boolean(place: SectionPlace, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise place.error(f"{shown(value)} is not a boolean; write {key} = true or {key} = false", key)
    return value


def text(place: SectionPlace, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise place.error(f'{shown(value)} is not a text; write {key} = "..."', key)
    return value.strip()


def name(place: SectionPlace, key: str, value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value in {".", ".."}:
        raise place.error(
            f"{shown(value)} is not a name; use 1 to 100 letters, digits, dots, dashes and underscores", key
        )
    return value


def choice(options: Collection[str]) -> Reader:
    def read(place: SectionPlace, key: str, value: object) -> str:
        if value not in options:
            near = nearest(str(value), options)
            raise place.error(f"{shown(value)} is not one of {', '.join(options)}{f'; {near}' if near else ''}", key)
        return str(value)

    return read


def acks(place: SectionPlace, key: str, value: object) -> int:
    if isinstance(value, bool) or value not in (0, 1, -1, "0", "1", "-1", "all"):
        raise place.error(f'{shown(value)} is not a value of acks; write 0, 1 or "all"', key)
    return ACKS_ALL if value == "all" else int(value)


def names(place: SectionPlace, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_LIST:
        raise place.error(f'{shown(value)} is not a list of names; write {key} = ["a", "b"]', key)
    return tuple(name(place, key, entry) for entry in value)


def replicas(place: SectionPlace, key: str, value: object) -> int | tuple[tuple[int, ...], ...]:
    """A number of replicas, or the brokers of each partition."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    rows = value if isinstance(value, list) and 1 <= len(value) <= MAX_LIST else None
    if rows is None or not all(isinstance(row, list) and all(type(broker) is int for broker in row) for row in rows):
        raise place.error(
            f"{shown(value)} is neither a number nor a list of brokers for each partition; write 3 or [[1, 2, 3]]", key
        )
    return tuple(tuple(row) for row in rows)


def time_text(milliseconds: float) -> str:
    """As a scenario writes a time."""
    for unit, size in (("h", 3_600_000.0), ("m", 60_000.0), ("s", 1_000.0)):
        if milliseconds >= size and (milliseconds / size) % 1 == 0:
            return f"{milliseconds / size:.0f}{unit}"
    if milliseconds >= _UNITS["s"]:
        return f"{milliseconds / 1_000:.3f}".rstrip("0") + "s"
    return f"{milliseconds:.3f}".rstrip("0").rstrip(".") + "ms"
