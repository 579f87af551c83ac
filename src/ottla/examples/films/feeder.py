"""Viewers watch films: a position for each minute. Some titles are unknown, and some records are broken."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ottla.examples.catalogue import InputEvent

POSITIONS, CATALOGUE = "user.films.positions.json", "user.films.catalogue.json"
TOPICS = {POSITIONS: 32, CATALOGUE: 1}
GENRES = ("comedy", "crime", "drama", "science fiction", "western")
FILMS = {f"{genre.title()} {number}": genre for genre in GENRES for number in range(1, 13)}
VIEWERS = 2_000
SECONDS = 90 * 60


def events(count: int) -> Iterator[InputEvent]:
    for film, genre in FILMS.items():
        yield InputEvent(CATALOGUE, film, {"film": film, "genre": genre})
    draw = random.Random(7)  # noqa: S311 - data of an example
    places: dict[str, tuple[str, int]] = {}
    for _ in range(count):
        viewer = f"viewer-{draw.randrange(min(VIEWERS, count // 20 + 1))}"
        film, second = places.get(viewer, ("", SECONDS))
        if second >= SECONDS or draw.random() < 0.1:
            film, second = draw.choice(tuple(FILMS)), 0
        places[viewer] = film, second + 60
        position = {"viewer": viewer, "film": film, "second": second + 60}
        chance = draw.random()
        if chance < 0.003:
            yield InputEvent(POSITIONS, viewer, b'{"viewer": ')
        yield InputEvent(POSITIONS, viewer, position if chance < 0.995 else position | {"film": "Lost Film"})
