"""A count from house to house: each person lives from a day to a day. The terminal shows the population by decade."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from ottla.examples.catalogue import InputEvent, Panel
from ottla.examples.census.feeder import TOWNS
from ottla.examples.census.pipeline import POPULATION
from ottla.examples.outputs import Outputs

MONTHS = [f"{year}-{month:02}" for year in range(1900, 2026, 5) for month in (1, 6)]


def expected(events: Iterable[InputEvent]) -> dict[str, Any]:
    """From whole lives, not from sums of changes."""
    births: dict[int, str] = {}
    deaths: dict[int, str] = {}
    homes: dict[int, str] = {}
    dead_letters = 0
    for event in events:
        if isinstance(event.value, bytes):
            dead_letters += 1
            continue
        person = event.value["person"]
        homes[person] = event.value["town"]
        (births if event.value["event"] == "birth" else deaths)[person] = event.value["day"][:7]
    born, gone = sorted(births.values()), sorted(deaths.values())
    alive = [home for person, home in homes.items() if person not in deaths]
    return {
        "months": {month: bisect_right(born, month) - bisect_right(gone, month) for month in MONTHS},
        "towns": {town: alive.count(town) for town in TOWNS},
        "dead letters": dead_letters,
    }


def results(outputs: Outputs) -> dict[str, Any]:
    return {
        "months": {month: outputs.sql(POPULATION.format(month=month), "changes")[0][0] or 0 for month in MONTHS},
        "towns": dict(outputs.sql("select town, population from towns", "towns")),
        "dead letters": outputs.sql('select count(*) from "logging.census.lives.dead"')[0][0],
    }


def panels(outputs: Outputs) -> Iterator[Panel]:
    decades = """with years as (select (month[1:3] || '0') as decade, births, deaths from changes),
                 sums as (select decade, sum(births)::bigint as born, sum(deaths)::bigint as gone from years group by 1)
                 select decade, born, gone, (sum(born - gone) over (order by decade))::bigint from sums order by 1"""
    rows = outputs.sql(decades, "changes")
    most = max((row[3] for row in rows), default=1)
    drawn = [(*row, "#" * round(24 * row[3] / most)) for row in rows]
    yield Panel("population at the end of each decade (view logging.census.changes.json)",
                ("decade", ">births", ">deaths", ">population", ""), drawn)  # fmt: skip
    towns = outputs.sql("select town, population from towns order by town", "towns")
    yield Panel("population now (view logging.census.towns.json)", ("town", ">population"), towns)
