"""Records as JSON rows, written and read with librdkafka: what a manifest keeps of a partition.

Bytes are Latin-1 text, so that every byte has a character; long ones are kept as their length and SHA-256.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

LONG = 500
TIMEOUT_S = 60
START_MS = 1_790_000_000_000
"""Timestamps of recorded records begin here."""


Place = tuple[str, int]
"""Topic and partition."""


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = START_MS
    headers: list[tuple[str, bytes | None]] | None = None
    partition: int = 0


def text(data: bytes | None) -> str | None:
    if data is None:
        return None
    if len(data) > LONG:
        return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"
    return data.decode("latin-1")


def send(servers: str, topic: str, records: Iterable[Record], **settings: Any) -> None:
    """Acknowledged by every replica; `compression_type` is compression.type."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": servers, "log_level": 3, "acks": "all", **given})
    send_with(producer, topic, records)


def send_with(producer: Producer, topic: str, records: Iterable[Record]) -> None:
    failures: list[KafkaError] = []
    for one in records:
        producer.produce(
            topic, one.value, one.key, one.partition, timestamp=one.timestamp_ms, headers=one.headers,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )  # fmt: skip
    left = producer.flush(TIMEOUT_S)
    if left or failures:
        raise AssertionError(f"{topic}: {left} records are unacknowledged, {failures[:3]}")


def read(servers: str, places: Iterable[Place], *, committed: bool, **settings: Any) -> dict[Place, dict[str, Any]]:
    """Of each partition: log start offset, end offset (the last stable one with `committed`), every row between them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "upgrade-reader", "enable.auto.commit": False, "log_level": 3,
            "isolation.level": "read_committed" if committed else "read_uncommitted", "check.crcs": True,
            "enable.partition.eof": True, "auto.offset.reset": "error", "fetch.wait.max.ms": 50, **settings,
        }
    )  # fmt: skip
    try:
        found = {}
        for place in places:
            start, end = consumer.get_watermark_offsets(TopicPartition(*place), TIMEOUT_S)
            found[place] = {"start": start, "end": end, "rows": []}
        _read_rows(consumer, found)
    finally:
        consumer.close()
    return found


def _read_rows(consumer: Consumer, found: dict[Place, dict[str, Any]]) -> None:
    waiting = set(found)
    consumer.assign([TopicPartition(*place, one["start"]) for place, one in found.items()])
    deadline = time.monotonic() + TIMEOUT_S
    while waiting and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.1):
            error, place = message.error(), (message.topic(), message.partition())
            if error is None:
                found[place]["rows"].append(_row(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(place)
            else:
                raise AssertionError(f"{place}: {error}")
    if waiting:
        raise AssertionError(f"the ends of {sorted(waiting)} were not reached")


def _row(message: Message) -> list[Any]:
    kind, timestamp = message.timestamp()
    headers = [[name, text(value)] for name, value in message.headers() or []]
    return [message.offset(), kind, timestamp, text(message.key()), text(message.value()), headers]
