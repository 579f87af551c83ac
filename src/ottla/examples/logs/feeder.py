"""Forty machines write lines and metrics into one topic; one machine fails for some minutes, another machine is too busy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from ottla.examples.catalogue import InputEvent

RECORDS = "logging.machines.all.json"
TOPICS = {RECORDS: 4}
MACHINES = [f"{role}-{number:02}" for role in ("web", "db", "cache", "worker") for number in range(1, 11)]
START = datetime(2026, 11, 14, 9, tzinfo=UTC)
MINUTES = 60


def events(count: int) -> Iterator[InputEvent]:
    draw = random.Random(7)  # noqa: S311 - data of an example
    for number in range(count):
        at = START + timedelta(seconds=number * MINUTES * 60 // count - draw.choice((0, 0, 0, 2, 30)))  # some come late
        machine = draw.choice(MACHINES)
        record = {"machine": machine, "at": at.isoformat()}
        if draw.random() < 0.5:
            fails = machine == "db-03" and 20 <= at.minute < 25
            level = "ERROR" if draw.random() < (0.9 if fails else 0.01) else draw.choice(("INFO", "INFO", "WARN"))
            record |= {"kind": "log", "level": level, "text": "disk full" if fails else "request done"}
            yield InputEvent(RECORDS, machine, record)
        else:
            busy = machine == "worker-07" and at.minute >= 40
            metric = draw.choice(("cpu", "memory"))
            value = round(draw.uniform(93, 100) if busy else draw.uniform(5, 70), 1)
            yield InputEvent(RECORDS, machine, {**record, "kind": "metric", "metric": metric, "value": value})
        if draw.random() < 0.001:
            yield InputEvent(RECORDS, machine, b"<34>Nov 14 09:00:00 kernel: no JSON")
