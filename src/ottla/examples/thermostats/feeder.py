"""Rooms of a house for a day: each reading of temperature, humidity or air quality goes to the topic of its kind."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from ottla.examples.catalogue import InputEvent

TOPICS = {f"user.home.{kind}.json": 2 for kind in ("temperature", "humidity", "air")}
ROOMS = [f"{name} {floor}" for floor in range(1, 9) for name in ("kitchen", "bedroom", "office")]
MEANS = {"temperature": (20.0, 2.5, 0.4), "humidity": (55.0, 9.0, 2.0), "air": (900.0, 220.0, 40.0)}
"""Mean of a day, its swing and its noise."""
START = datetime(2026, 11, 14, tzinfo=UTC)


def events(count: int) -> Iterator[InputEvent]:
    draw = random.Random(7)  # noqa: S311 - data of an example
    for number in range(count):
        seconds = number * 86_400 // count
        room, kind = draw.choice(ROOMS), draw.choice(tuple(MEANS))
        mean, swing, noise = MEANS[kind]
        value = mean + swing * math.sin(seconds / 86_400 * 4 * math.pi + len(room)) + draw.gauss(0, noise)
        at = (START + timedelta(seconds=seconds)).isoformat()
        if draw.random() < 0.001:
            yield InputEvent(f"user.home.{kind}.json", room, b'{"room": "nowhere", "value": "warm"')
        yield InputEvent(f"user.home.{kind}.json", room, {"room": room, "value": round(value, 2), "at": at})
