"""The results of the films in plain Python, and how the terminal shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ottla.examples.catalogue import InputEvent, Panel
from ottla.examples.films.feeder import CATALOGUE
from ottla.examples.outputs import Outputs

VIEW = "user.films.resume.json"
RECOMMENDED = 'select key, arg_max(json->>\'film\', "offset") from "user.films.recommendations.json" group by key'


def expected(events: Iterable[InputEvent]) -> dict[str, Any]:
    genres: dict[str, str] = {}
    resume: dict[tuple[str, str], int] = {}
    seconds: Counter[tuple[str, str]] = Counter()
    dead = 0
    for event in events:
        position = event.value
        if event.topic == CATALOGUE and isinstance(position, dict):
            genres[position["film"]] = position["genre"]
        elif isinstance(position, bytes) or position["film"] not in genres:
            dead += 1
        else:
            viewer, film = position["viewer"], position["film"]
            resume[viewer, film] = position["second"]
            seconds[viewer, genres[film]] += 60
    favourites: dict[str, tuple[int, str]] = {}
    for (viewer, genre), watched in seconds.items():
        favourites[viewer] = max(favourites.get(viewer, (0, "")), (watched, genre))
    shown = {}
    for viewer, (_, favourite) in favourites.items():
        films = sorted(film for film, genre in genres.items() if genre == favourite)
        shown[viewer] = next((film for film in films if (viewer, film) not in resume), films[0])
    return {
        "resume points": resume,
        "profiles": dict(seconds),
        "recommendations": shown,
        "rows for analysis": sum(seconds.values()) // 60,
        "dead letters": dead,
        "answers over HTTP": len(_sampled(resume)),
    }


def results(outputs: Outputs) -> dict[str, Any]:
    resume = {(row[0], row[1]): row[2] for row in outputs.sql("select viewer, film, second from resume", "resume")}
    answers = {key: outputs.view_row("films", VIEW, viewer=key[0], film=key[1]) for key in _sampled(resume)}
    rows = outputs.sql("select viewer, genre, seconds from profiles", "profiles")
    return {
        "resume points": resume,
        "profiles": {(viewer, genre): seconds for viewer, genre, seconds in rows},
        "recommendations": dict(outputs.sql(RECOMMENDED)),
        "rows for analysis": outputs.sql("select count(*) from watched", "watched")[0][0],
        "dead letters": outputs.sql('select count(*) from "user.films.positions.dead"')[0][0],
        "answers over HTTP": sum(row["second"] == resume[key] for key, row in answers.items()),
    }


def _sampled(resume: dict[tuple[str, str], int]) -> list[tuple[str, str]]:
    return sorted(resume)[:3]


def panels(outputs: Outputs) -> Iterator[Panel]:
    films = "select film, count(*), count(distinct viewer) from watched group by film order by 2 desc, 1 limit 5"
    yield Panel("most watched (Delta table watched)", ("film", ">minutes", ">viewers"), outputs.sql(films, "watched"))
    likes = """select viewer, arg_max(genre, seconds), max(seconds), arg_max(film, seconds) from profiles
               group by 1 order by 3 desc, 1 limit 5"""
    yield Panel("profiles and what to show next (view user.films.profiles.json)",
                ("viewer", "likes", ">seconds", "next"), outputs.sql(likes, "profiles"))  # fmt: skip
    places = outputs.sql("select viewer, film, second from resume order by 1, 2 limit 3", "resume")
    yield Panel("resume (view user.films.resume.json, by key over HTTP)", ("viewer", "film", ">second"), places)
