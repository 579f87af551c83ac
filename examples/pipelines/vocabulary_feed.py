"""Data for vocabulary.py: two topics of events (late, double, out of order, broken), and two compacted tables.

python examples/pipelines/vocabulary_feed.py HOST:PORT
"""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
BROKEN = ("{", '{"id": "x"}', "plain text")
USERS = [
    ("ada", {"name": "ada", "country": "cz"}),
    ("bob", {"name": "bob", "country": "uk"}),
    ("eve", {"name": "eve", "country": "xx"}),
    ("ada", {"name": "ada", "country": "at"}),
    ("bob", None),  # a tombstone
]
COUNTRIES = [("at", {"country": "at", "capital": "Vienna"}), ("cz", {"country": "cz", "capital": "Prague"})]


def made_up(count: int, seed: int, first_id: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    events: list[dict[str, Any]] = []
    for number in range(count):
        at = START + timedelta(seconds=number * 0.9 - draw.choice((0, 0, 0, 5, 40)))  # out of order by up to 40 s
        event = {
            "id": first_id + number,
            "user": draw.choice(("ada", "bob", "eve", "max")),
            "kind": draw.choice(("buy", "look")),
            "amount": draw.randrange(1, 100),
            "words": " ".join(draw.choices(("log", "table", "stream"), k=2)),
            "at": at.isoformat(),
        }
        events.append(event)
        if draw.random() < 0.05:
            events.append(event)  # the producer sent the event twice
    return events


def main() -> None:
    servers = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    admin = AdminClient({"bootstrap.servers": servers})
    compacted = {"cleanup.policy": "compact"}
    topics = [NewTopic("events", 2), NewTopic("more-events", 2)]
    topics += [NewTopic(name, 1, config=compacted) for name in ("users", "countries")]
    for created in admin.create_topics(topics).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for topic, pairs in (("users", USERS), ("countries", COUNTRIES)):
        for key, value in pairs:
            producer.produce(topic, None if value is None else json.dumps(value), key)
    first = made_up(400, 1, 0)
    for event in first[:200]:
        producer.produce("events", json.dumps(event))
    for text in BROKEN:
        producer.produce("events", text)
    for topic, events in (("events", first[200:]), ("more-events", made_up(300, 2, 10_000))):
        for event in events:
            producer.produce(topic, json.dumps(event))
    if producer.flush(30):
        sys.exit(f"{servers} did not acknowledge every record in 30 s")


if __name__ == "__main__":
    main()
