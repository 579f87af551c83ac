"""Data for the demo, the same from one seed: a web access log with some noise, and thermostats, late, double and broken.

Each also comes with what the pipelines must find in it, computed here without Spark.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

START = datetime(2018, 3, 1, 23, 0, tzinfo=UTC)
PAGES = (
    "/v1/data/write/Ras_Beirut/status", "/v1/data/write/Hamra/status", "/v1/data/publish/ISS/position",
    "/v1/data/write/bbt_raspi/cpu", "/v1/data/write/bbt_raspi/memory", "/v1/data/read/ISS/position", "/", "/login",
)  # fmt: skip
AGENTS = ("beebotte node.js SDK v1.2.0", "python-requests/2.13.0", "curl/7.58.0")
NOISE = ("-- MARK --", "kernel: eth0 link up", "::ffff:10.0.0.1 - - [01/Mar/2018", '{"not": "a log line"}')
ROOMS = {"living room": 21.0, "kitchen": 19.5, "bedroom": 17.0, "office": 20.0, "cellar": 12.0}


@dataclass(slots=True)
class Expected:
    lines: int = 0
    hits: int = 0
    noise: int = 0
    pages: Counter[str] = field(default_factory=Counter)
    minutes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    readings: int = 0
    broken: int = 0


def access_log(count: int, seed: int, expected: Expected) -> Iterator[tuple[str, str, int]]:
    """Key (the address), line and time in ms of each record; every fortieth line is noise."""
    draw = random.Random(seed)  # noqa: S311 - data for a demo
    addresses = [f"::ffff:54.{draw.randrange(200, 250)}.{draw.randrange(256)}.{n}" for n in range(1, 41)]
    moment = START
    for _ in range(count):
        moment += timedelta(milliseconds=draw.randrange(20, 160))
        address = draw.choice(addresses)
        expected.lines += 1
        if draw.random() < 0.025:
            expected.noise += 1
            yield address, draw.choice(NOISE), int(moment.timestamp() * 1000)
            continue
        seen = moment - timedelta(seconds=draw.choice((0, 0, 0, 0, 1, 2, 8)))  # some arrive late
        page = draw.choices(PAGES, weights=(9, 7, 12, 5, 4, 6, 3, 1))[0]
        outage = seen.minute == 5 and page.startswith("/v1/data/write")
        status = (
            draw.choice((500, 503)) if outage and draw.random() < 0.6 else draw.choices((200, 404), weights=(30, 1))[0]
        )
        stamp = seen.strftime("%d/%b/%Y:%H:%M:%S +0000")
        method = "GET" if "read" in page or page in {"/", "/login"} else "POST"
        line = f'{address} - - [{stamp}] "{method} {page} HTTP/1.1" {status} {draw.randrange(4, 900)} "-" "{draw.choice(AGENTS)}"'
        minute = seen.strftime("%Y-%m-%d %H:%M")
        expected.hits += 1
        expected.pages[page] += 1
        expected.minutes[minute] += 1
        if status >= 500:
            expected.errors[minute] += 1
        yield address, line, int(moment.timestamp() * 1000)


def thermostats(count: int, seed: int, expected: Expected) -> Iterator[tuple[str, str, int]]:
    draw = random.Random(seed)  # noqa: S311 - data for a demo
    rooms = list(ROOMS)
    moment = START
    for number in range(count):
        moment += timedelta(milliseconds=draw.randrange(100, 900))
        device = f"thermostat-{number % len(rooms) + 1}"
        room = rooms[number % len(rooms)]
        reading = {
            "device": device,
            "celsius": round(ROOMS[room] + draw.gauss(0, 0.8), 2),
            "at": moment.isoformat(),
        }
        text = json.dumps(reading)
        if draw.random() < 0.02:
            text = text[: draw.randrange(3, len(text) - 2)]
            expected.broken += 1
        else:
            expected.readings += 1
        yield device, text, int(moment.timestamp() * 1000)


def devices() -> list[tuple[str, str, int]]:
    """The table in SQLite that readings are enriched by: device, room, floor."""
    return [(f"thermostat-{n}", room, -1 if room == "cellar" else n % 2) for n, room in enumerate(ROOMS, 1)]
