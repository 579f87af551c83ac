"""Both views in plain Python, and how the terminal shows them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.examples.catalogue import InputEvent, Panel
from ottla.examples.outputs import Outputs


def expected(events: Iterable[InputEvent]) -> dict[str, Any]:
    pages: dict[str, tuple[int, int, int]] = {}
    dead = 0
    for event in events:
        if isinstance(event.value, bytes):
            dead += 1
            continue
        clicks, total, slowest = pages.get(event.value["page"], (0, 0, 0))
        ms = event.value["ms"]
        pages[event.value["page"]] = clicks + 1, total + ms, max(slowest, ms)
    clicks = sum(facts[0] for facts in pages.values())
    return {"speed view": pages, "batch view": pages, "clicks of the master table": clicks, "dead letters": dead}


def results(outputs: Outputs) -> dict[str, Any]:
    views = {}
    for layer in ("speed", "batch"):
        rows = outputs.sql(f"select page, clicks, ms, slowest from {layer}", layer)  # noqa: S608 - a name of this file
        views[f"{layer} view"] = {page: tuple(facts) for page, *facts in rows}
    return {
        **views,
        "clicks of the master table": outputs.sql("select count(*) from master", "master")[0][0],
        "dead letters": outputs.sql('select count(*) from "user.shop.clicks.dead"')[0][0],
    }


def panels(outputs: Outputs) -> Iterator[Panel]:
    speed = outputs.sql("select page, clicks, ms // clicks from speed order by clicks desc, page limit 8", "speed")
    batch = dict(outputs.sql("select page, clicks from batch", "batch"))
    rows = [(page, clicks, batch.get(page, ""), ms) for page, clicks, ms in speed]
    yield Panel("clicks by page (view user.shop.speed.json, Delta table batch)",
                ("page", ">speed view", ">batch view", ">ms"), rows)  # fmt: skip
    total = outputs.sql("select count(*), count(distinct visitor), max(ms) from master", "master")
    yield Panel("a question that came later (Delta table master)", (">clicks", ">visitors", ">slowest ms"), total)
