"""Taxis: a rider gets the closest free driver of the zone, at a price that rises with demand; a table stores every ride.

A zone is a square of the map, computed from the place of an event. The topic is keyed by zone, so the offsets of a
partition order the events of each zone.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ottla.pipelines import Pipeline, delta, topic, view

TABLES = os.environ.get("OTTLA_TABLES", "tables")
EVENT = "kind string, who string, lat double, lon double, km int, at timestamp"
EVENTS = topic("user.taxis.events.json", value="json", schema=EVENT, dead_letter="user.taxis.events.dead")
RIDE = "zone string, rider string, driver string, away double, km int, factor double, price double, at timestamp"
RIDES = topic("queuing.taxis.rides.json", value="json", schema=RIDE, key="zone", partitions=4)
PRICES = view("queuing.taxis.prices.json", f"{TABLES}/prices", keys=["zone", "start"], partitions=2)
WINDOW_S, FARE, PER_KM, HIGHEST = 600, 3.0, 1.2, 3.0
ZONE = "format_string('%d/%d', floor(lat * 20), floor(lon * 20)) as zone"

taxis = Pipeline("taxis")


def price_factor(requests: int, free: int) -> float:
    """Demand and supply of a zone in a window, as a factor between 1 and HIGHEST."""
    return min(HIGHEST, max(1.0, requests * 100 // max(1, free) / 100))


@dataclass
class Zone:
    """Who is free and who waits in a zone. The same events in the same order give the same rides."""

    free: dict[str, list[float]] = field(default_factory=dict)
    waiting: list[list[Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    window: int = 0

    def apply(self, kind: str, who: str, lat: float, lon: float, km: int, at_s: int) -> list[tuple[Any, ...]]:
        if at_s // WINDOW_S != self.window:
            self.window, self.counts = at_s // WINDOW_S, {}
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.free.pop(who, None)
        if kind == "request":
            self.waiting.append([who, lat, lon, km])
        elif kind == "free":
            self.free[who] = [lat, lon]
        rides = []
        while self.waiting and self.free:
            rider, *here, length = self.waiting.pop(0)
            driver = min(self.free, key=lambda name: (math.dist(self.free[name], here), name))
            away = round(math.dist(self.free.pop(driver), here) * 111, 2)  # a degree has 111 km
            factor = price_factor(self.counts.get("request", 0), self.counts.get("free", 0))
            rides.append((rider, driver, away, length, factor, round((FARE + PER_KM * length) * factor, 2), at_s))
        return rides


class RideDispatcher(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._stored = handle.getValueState("zone", "state string")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - Spark's names
        zone = Zone(**json.loads(stored[0])) if (stored := self._stored.get()) else Zone()
        events = pd.concat(rows).sort_values("offset")
        columns = (events[name].tolist() for name in ("kind", "who", "lat", "lon", "km", "at_s"))
        rides = [(key[0], *ride) for event in zip(*columns, strict=True) for ride in zone.apply(*event)]
        self._stored.update((json.dumps(asdict(zone)),))
        yield pd.DataFrame(rides, columns=["zone", "rider", "driver", "away", "km", "factor", "price", "at_s"])

    def close(self) -> None:
        """Spark's interface has this method. Nothing is open."""


@taxis.step(reads={"events": EVENTS}, writes=RIDES)
def dispatch(events: DataFrame) -> DataFrame:
    zones = events.selectExpr(ZONE, "*", "unix_timestamp(at) as at_s", "_offset as offset").groupBy("zone")
    schema = RIDE.replace("at timestamp", "at_s long")
    rides = zones.transformWithStateInPandas(RideDispatcher(), schema, "Append", "None")
    return rides.withColumn("at", F.timestamp_seconds("at_s")).drop("at_s")


@taxis.step(reads={"events": EVENTS}, writes=PRICES, output_mode="update")
def prices(events: DataFrame) -> DataFrame:
    windows = events.groupBy(F.expr(ZONE), F.window("at", f"{WINDOW_S} seconds"))
    counted = windows.agg(F.expr("count_if(kind = 'request') as requests"), F.expr("count_if(kind = 'free') as free"))
    factor = F.expr(f"least({HIGHEST}D, greatest(1D, floor(requests * 100 / greatest(1, free)) / 100)) as factor")
    return counted.select("zone", F.expr("date_format(window.start, 'HH:mm') as start"), "requests", "free", factor)


@taxis.step(reads={"rides": RIDES}, writes=delta(f"{TABLES}/rides"))
def analysis(rides: DataFrame) -> DataFrame:
    return rides.select("zone", "rider", "driver", "away", "km", "factor", "price", "at")
