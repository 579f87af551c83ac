"""The rides and prices in plain Python, and how the terminal shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from ottla.examples.catalogue import InputEvent, Panel
from ottla.examples.outputs import Outputs
from ottla.examples.taxis.pipeline import WINDOW_S, Zone, price_factor


def expected(events: Iterable[InputEvent]) -> dict[str, Any]:
    zones: dict[str, Zone] = {}
    counts: Counter[tuple[str, int, str]] = Counter()
    rides: dict[str, tuple[Any, ...]] = {}
    dead = 0
    for event in events:
        if isinstance(value := event.value, bytes):
            dead += 1
            continue
        at_s = int(datetime.fromisoformat(value["at"]).timestamp())
        counts[event.key, at_s // WINDOW_S, value["kind"]] += 1
        zone = zones.setdefault(event.key, Zone())
        for ride in zone.apply(value["kind"], value["who"], value["lat"], value["lon"], value["km"], at_s):
            rides[ride[0]] = (event.key, *ride[1:6])
    factors = {}
    for zone_name, window in {(name, window) for name, window, _ in counts}:
        start = f"{window * WINDOW_S // 3600 % 24:02}:{window * WINDOW_S // 60 % 60:02}"
        requests, free = (counts[zone_name, window, kind] for kind in ("request", "free"))
        factors[zone_name, start] = price_factor(requests, free)
    return {"rides": rides, "prices by zone and window": factors, "dead letters": dead}


def results(outputs: Outputs) -> dict[str, Any]:
    rides = outputs.sql("select rider, zone, driver, away, km, factor, price from rides", "rides")
    prices = outputs.sql("select zone, start, factor from prices", "prices")
    return {
        "rides": {rider: tuple(ride) for rider, *ride in rides},
        "prices by zone and window": {(zone, start): factor for zone, start, factor in prices},
        "dead letters": outputs.sql('select count(*) from "user.taxis.events.dead"')[0][0],
    }


def panels(outputs: Outputs) -> Iterator[Panel]:
    rides = """select split_part(rider, ' ', 1) as city, count(*)::bigint, round(avg(away), 2), round(avg(factor), 2),
               round(sum(price), 2), if(bool_and(city = split_part(driver, ' ', 1)), 'yes', 'no') from rides group by 1 order by 1"""
    yield Panel("rides (Delta table rides)",
                ("city", ">rides", ">km away", ">factor", ">paid", "in the city"), outputs.sql(rides, "rides"))  # fmt: skip
    dear = "select zone, start, requests, free, factor from prices order by factor desc, requests desc, zone, start limit 5"
    yield Panel("highest prices (view queuing.taxis.prices.json)",
                ("zone", "from", ">requests", ">free", ">factor"), outputs.sql(dear, "prices"))  # fmt: skip
