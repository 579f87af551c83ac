"""Writing and reading for a test by real clients: confluent-kafka's producer and consumer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from ottla.frames.records import DecodedRecord, Decoding
from ottla.testing.clock import BrokerClock
from ottla.testing.faults import KIT_CLIENT
from ottla.testing.groups import WaitError

_FLUSH_S = 30.0
_POLL_S = 0.2
_MOST_QUEUED = 50_000
"""Half of librdkafka's queue.buffering.max.messages: a full queue refuses records."""


class RecordExchange:
    """`close` it: the producer has threads."""

    def __init__(self, bootstrap_servers: str, clock: BrokerClock) -> None:
        self._settings = {"bootstrap.servers": bootstrap_servers, "client.id": KIT_CLIENT, "log_level": 2}
        self._clock = clock
        self._producer = Producer(
            {**self._settings, "linger.ms": 0, "partitioner": "murmur2_random", "enable.idempotence": True}
        )

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)

    def produce(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        key: Any,
        headers: Mapping[str, str | bytes] | None,
        partition: int | None,
    ) -> None:
        failures: list[Any] = []

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        place: Any = {} if partition is None else {"partition": partition}
        count = 0
        for value in values:
            while len(self._producer) >= _MOST_QUEUED:
                self._producer.poll(_POLL_S)
            self._producer.produce(
                topic, encoded(value), encoded(key), on_delivery=on_delivery, timestamp=self._clock.time_ms(),
                headers=dict(headers) if headers else None, **place,
            )  # fmt: skip
            count += 1
        missing = self._producer.flush(_FLUSH_S)
        if failures:
            raise KafkaException(failures[0])
        if missing:
            raise WaitError(f"{missing} of {count} records to {topic} were not acknowledged in {_FLUSH_S:g} s")

    def consume(self, topic: str, count: int, group: str, timeout_s: float, decoding: Decoding) -> list[DecodedRecord]:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        deadline = time.monotonic() + timeout_s
        records: list[DecodedRecord] = []
        try:
            consumer.subscribe([topic])
            while len(records) < count:
                if time.monotonic() > deadline:
                    raise WaitError(f"{len(records)} of {count} records of {topic} came in {timeout_s:g} s")
                for message in consumer.consume(count - len(records), _POLL_S):
                    error = message.error()
                    if error is None:
                        records.append(_record(message, decoding))
                    elif not error.retriable():
                        raise KafkaException(error)
            if records:
                consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return records


def encoded(value: Any) -> bytes | None:
    """Text as UTF-8, bytes as they are, None as null, everything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _record(message: Any, decoding: Decoding) -> DecodedRecord:
    return DecodedRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=decoding.decode(message.key()),
        value=decoding.decode(message.value()),
        headers=tuple(message.headers() or ()),
        key_bytes=message.key(),
        value_bytes=message.value(),
    )
