"""What a reader of committed records finds in a topic of lines."""

from __future__ import annotations

import time

from confluent_kafka import Consumer


def committed_lines(bootstrap_servers: str, topic: str, count: int, timeout_s: float) -> list[str]:
    """So many lines, and what else comes within a second."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        messages = consumer.consume(500, 1.0)
        found += [(message.value() or b"").decode() for message in messages if message.error() is None]
        if len(found) >= count and not messages:
            break
    consumer.close()
    return found
