"""Taxis: a rider gets the closest free driver of the zone, at a price that rises with demand; every ride is kept.

Events of drivers and riders are keyed by zone, so that each zone has one order and one worker that decides.

    python examples/cases/taxis.py HOST:PORT      # any number of these, against `ottla up` or Apache Kafka
"""

from __future__ import annotations

import math
import os
import signal
import sys

from replayed import Event, Service

EVENTS = "user.taxi.events.json"
RIDES = "queuing.taxi.rides.json"
FARE, PER_KM, HIGHEST = 3.0, 1.2, 3.0


class Zone:
    def __init__(self) -> None:
        self.free: dict[str, tuple[float, float]] = {}
        self.waiting: list[Event] = []

    def apply(self, event: Event) -> list[tuple[str, Event]]:
        if event["kind"] == "request":
            self.waiting.append(event)
        elif event["kind"] == "free":
            self.free[event["driver"]] = (event["x"], event["y"])
        elif event["kind"] == "gone":
            self.free.pop(event["driver"], None)
        return self._matched()

    def _matched(self) -> list[tuple[str, Event]]:
        rides = []
        while self.waiting and self.free:
            demand = min(HIGHEST, max(1.0, len(self.waiting) / len(self.free)))
            rider = self.waiting.pop(0)
            here = (rider["x"], rider["y"])
            driver = min(self.free, key=lambda name: (math.dist(self.free[name], here), name))
            away = math.dist(self.free.pop(driver), here)
            price = round((FARE + PER_KM * rider["km"]) * demand, 2)
            ride = {"rider": rider["rider"], "driver": driver, "away": round(away, 3), "demand": demand, "price": price}
            rides.append((rider["rider"], ride))
        return rides


def main() -> None:
    left = int(os.environ.get("DIE_AFTER", "0"))  # transactions, for the test: then kill -9 in the middle of one

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: stop.append(got))
    Service(sys.argv[1], "dispatch", EVENTS, RIDES, Zone).run(stopping=lambda: bool(stop), before_commit=die)


if __name__ == "__main__":
    main()
