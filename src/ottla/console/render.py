"""Templates and what they may call. Every value is escaped: no template turns escaping off."""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from ottla.console.messages.record import time_text
from ottla.model.peer_text import cut


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ottla.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(size=size, count=count, span=span, when=time_text, path=path_part, json=to_json, cut=cut)
    return made


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(**values)


def size(value: float | None) -> str:
    """Bytes for people."""
    if value is None or value < 0:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError(value)


def count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:,.1f}"


def span(seconds: float | None) -> str:
    """A stretch of time for people: the two largest units."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return "0 s" if seconds <= 0 else "< 1 s"
    parts = []
    seconds_left = int(seconds)
    for name, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds_left >= length:
            parts.append(f"{seconds_left // length} {name}")
            seconds_left %= length
    return " ".join(parts[:2])


def path_part(text: str) -> str:
    """A name as one segment of an address."""
    return quote(text, safe="")


def to_json(value: Any) -> str:
    """For an attribute; the template escapes it."""
    return json.dumps(value, separators=(",", ":"))
