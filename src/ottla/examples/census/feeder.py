"""Births and deaths in five towns since 1900, in the order of their days."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from datetime import date, timedelta

from ottla.examples.catalogue import InputEvent

LIVES = "logging.census.lives.json"
TOPICS = {LIVES: 4}
TOWNS = ("Ash", "Birch", "Elm", "Oak", "Pine")
FIRST, LAST = date(1900, 1, 1), date(2025, 12, 31)
_DAYS = (LAST - FIRST).days


def events(count: int) -> Iterator[InputEvent]:
    """About three births for two deaths: the others live."""
    draw = random.Random(7)  # noqa: S311 - data of an example
    deaths: list[tuple[int, int, str]] = []
    births = count * 3 // 5
    for person in range(births):
        day = person * _DAYS // births
        while deaths and deaths[0][0] <= day:
            yield _event(*heapq.heappop(deaths), "death")
        town = draw.choice(TOWNS)
        yield _event(day, person, town, "birth")
        heapq.heappush(deaths, (day + int(draw.triangular(1, 100 * 365, 70 * 365)), person, town))
        if draw.random() < 0.001:
            yield InputEvent(LIVES, town, b"a letter about a birth")
    while deaths and deaths[0][0] <= _DAYS:
        yield _event(*heapq.heappop(deaths), "death")


def _event(day: int, person: int, town: str, event: str) -> InputEvent:
    at = (FIRST + timedelta(days=day)).isoformat()
    return InputEvent(LIVES, town, {"person": person, "town": town, "event": event, "day": at})
