"""What a reader of committed records finds in a topic, and when it finds all of them."""

from __future__ import annotations

import contextlib
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition


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


def await_decided(bootstrap_servers: str, topic: str, timeout_s: float = 90) -> None:
    """Until no transaction is open. A commit is answered before its markers are in the partitions, and a transaction whose
    producer is gone holds what stands behind it back until it times out."""
    deadline = time.monotonic() + timeout_s
    decided, written = [-1], [-2]
    while True:
        with contextlib.suppress(KafkaException):  # a leader moves meanwhile
            decided = _ends(bootstrap_servers, topic, "read_committed")
            written = _ends(bootstrap_servers, topic, "read_uncommitted")
        if decided == written:
            return
        assert time.monotonic() < deadline, f"{topic}: decided up to {decided} of {written}"
        time.sleep(0.05)


def _ends(bootstrap_servers: str, topic: str, isolation_level: str) -> list[int]:
    asker = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "ends",
            "isolation.level": isolation_level,
            "log_level": 0,
        }
    )
    try:
        partitions = asker.list_topics(topic, 20).topics[topic].partitions
        return [asker.get_watermark_offsets(TopicPartition(topic, number), 20)[1] for number in sorted(partitions)]
    finally:
        asker.close()
