"""Clicks on the pages of a shop: some pages are much more popular than others."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ottla.examples.catalogue import InputEvent

CLICKS = "user.shop.clicks.json"
TOPICS = {CLICKS: 4}
PAGES = 200


def events(count: int) -> Iterator[InputEvent]:
    draw = random.Random(7)  # noqa: S311 - data of an example
    for _ in range(count):
        page = f"/product/{int(PAGES * draw.random() ** 3)}"
        visitor = f"visitor-{draw.randrange(count // 10 + 1)}"
        if draw.random() < 0.001:
            yield InputEvent(CLICKS, visitor, b"GET /product")
        yield InputEvent(CLICKS, visitor, {"page": page, "visitor": visitor, "ms": int(draw.expovariate(1 / 120))})
