"""Riders ask, drivers become free and leave, in four cities, in an evening.

Each record has the key of its zone, and a driver works in one zone."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from ottla.examples.catalogue import InputEvent

EVENTS = "user.taxis.events.json"
TOPICS = {EVENTS: 8}
CITIES = {"Berlin": (52.5, 13.4), "Paris": (48.85, 2.35), "Rome": (41.9, 12.5), "Oslo": (59.9, 10.75)}
START = datetime(2026, 11, 14, 20, tzinfo=UTC)


def events(count: int) -> Iterator[InputEvent]:
    draw = random.Random(7)  # noqa: S311 - data of an example
    for number in range(count):
        city, (lat, lon) = draw.choice(tuple(CITIES.items()))
        place = round(lat + draw.uniform(0, 0.1), 4), round(lon + draw.uniform(0, 0.1), 4)
        kind = draw.choice(("request", "request", "free", "free", "gone"))
        who = f"rider-{number}" if kind == "request" else f"driver-{zone(*place)}-{draw.randrange(15)}"
        at = START + timedelta(seconds=number * 7_200 // count)
        event = {"kind": kind, "who": f"{city} {who}", "lat": place[0], "lon": place[1], "km": draw.randrange(1, 20)}
        if draw.random() < 0.002:
            yield InputEvent(EVENTS, "nowhere", b"no place")
        yield InputEvent(EVENTS, zone(*place), {**event, "at": at.isoformat()})


def zone(lat: float, lon: float) -> str:
    return f"{math.floor(lat * 20)}/{math.floor(lon * 20)}"
