"""A page of messages: from the newest, from the oldest, from an offset or from a time. One read, bounded, then done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ottla.console.errors import ConsoleError
from ottla.console.messages.reach import Client
from ottla.console.messages.record import BrowsedRecord, from_message
from ottla.console.messages.span import TopicSpan, Walk, consumer, from_offset, since, whole

_PATIENCE_S = 15.0
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to begin: newest | oldest | offset | time."""

    begin: str = "newest"
    at: str = ""
    partitions: frozenset[int] = frozenset()

    def span(self, reader: object, topic: str, *, as_far_as_led: bool = False) -> TopicSpan:
        span = whole(reader, topic, self.partitions, as_far_as_led=as_far_as_led)
        if self.begin == "offset":
            return from_offset(span, _offset(self.at))
        if self.begin == "time":
            return since(reader, span, parse_time_ms(self.at))
        return span


@dataclass(frozen=True, slots=True)
class Page:
    records: list[BrowsedRecord]
    span: TopicSpan
    complete: bool
    """False when time ran out before everything asked for was read."""


def browse(client: Client, topic: str, place: Place, count: int) -> Page:
    with consumer(client) as reader:
        span = place.span(reader, topic, as_far_as_led=True)
        page_span = span.last(count) if place.begin == "newest" else span.first(count)
        walk = Walk(reader, page_span)
        records: list[BrowsedRecord] = []
        deadline = time.monotonic() + _PATIENCE_S
        while not walk.done and time.monotonic() < deadline:
            records += [from_message(message) for message in walk.step(500, 0.25)]
    newest = place.begin == "newest"
    records.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset), reverse=newest)
    return Page(records[:count], span, walk.done)


def parse_time_ms(text: str, now: datetime | None = None) -> int:
    """`-10m`, `2026-01-01`, `2026-01-01 12:30[:15]` (UTC), or milliseconds since 1970."""
    text = text.strip()
    if text[:1] == "-" and text[-1:] in _UNITS and text[1:-1].isdigit():
        moment = (now or datetime.now(UTC)) - timedelta(**{_UNITS[text[-1]]: int(text[1:-1])})
        return int(moment.timestamp() * 1000)
    if text.isdigit() and len(text) > 8:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConsoleError(
            f"{text!r} is not a time: write -10m, 2026-01-31, 2026-01-31 12:30 or milliseconds"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _offset(text: str) -> int:
    try:
        offset = int(text)
    except ValueError:
        raise ConsoleError(f"{text!r} is not an offset: write a whole number") from None
    if offset < 0:
        raise ConsoleError("an offset is 0 or more")
    return offset
