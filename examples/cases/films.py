"""Films: where each viewer stopped, what they like, and what to show next, while they watch.

Positions are keyed by viewer over many partitions; recommendations are few. A viewer's profile is what their own events say.

    python examples/cases/films.py HOST:PORT      # any number of these, against `ottla up` or Apache Kafka
"""

from __future__ import annotations

import signal
import sys
from collections import Counter

from replayed import Event, Service

POSITIONS = "user.films.positions.json"
RECOMMENDATIONS = "user.films.recommendations.json"
CATALOGUE = {
    "Alien": "science fiction", "Heat": "crime", "Solaris": "science fiction", "Rififi": "crime", "Moon": "science fiction",
    "Playtime": "comedy", "Stalker": "science fiction", "The Killing": "crime", "Mon oncle": "comedy",
}  # fmt: skip


class Viewers:
    """Of one partition: seconds watched by genre, and where each film stands."""

    def __init__(self) -> None:
        self.liked: dict[str, Counter[str]] = {}
        self.places: dict[str, dict[str, int]] = {}

    def apply(self, event: Event) -> list[tuple[str, Event]]:
        viewer, film, second = event["viewer"], event["film"], event["second"]
        liked, places = self.liked.setdefault(viewer, Counter()), self.places.setdefault(viewer, {})
        before = _next(liked, places)
        liked[CATALOGUE[film]] += max(0, second - places.get(film, 0))
        places[film] = second
        after = _next(liked, places)
        if after == before or after is None:
            return []
        return [(viewer, {"viewer": viewer, "film": after, "because": liked.most_common(1)[0][0]})]


def _next(liked: Counter[str], places: dict[str, int]) -> str | None:
    """The first film of the genre that was watched longest and was not begun."""
    for genre, _ in liked.most_common():
        for film, kind in CATALOGUE.items():
            if kind == genre and film not in places:
                return film
    return None


def main() -> None:
    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: stop.append(got))
    Service(sys.argv[1], "recommend", POSITIONS, RECOMMENDATIONS, Viewers).run(stopping=lambda: bool(stop))


if __name__ == "__main__":
    main()
