"""Records of a topic between two positions, for consume and export: all partitions, without a group or commits.

`group_reading.py` reads as a member of a group.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.client.librdkafka_errors import LocalError

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target
    from ottla.cli.records.start_position import When

_BATCH = 500


class Reading:
    """`total` is how many offsets lay between the start and the ends that were there at the beginning."""

    def __init__(self, target: Target, topic: str, start: When, partition: int | None = None) -> None:
        from confluent_kafka import Consumer

        if start.stored:
            raise ValueError("--from stored needs a group (-g): only a group has stored offsets")
        more = {
            "group.id": "ottla", "enable.partition.eof": True, "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }  # fmt: skip
        self._consumer = Consumer(target.librdkafka(producer=False) | more)
        self._topic = topic
        self.total = 0
        self._open: set[int] = set()
        self._assign(start, partition)

    def _assign(self, start: When, partition: int | None) -> None:
        from confluent_kafka import TopicPartition

        topic_metadata = self._consumer.list_topics(self._topic, timeout=15).topics[self._topic]
        if topic_metadata.error is not None:
            raise ValueError(f"{self._topic}: {topic_metadata.error.str()}")
        numbers = sorted(topic_metadata.partitions) if partition is None else [partition]
        if partition is not None and partition not in topic_metadata.partitions:
            raise ValueError(f"{self._topic} has no partition {partition}; it has {len(topic_metadata.partitions)}")
        places = []
        for number, (at, high) in starting_offsets(self._consumer, self._topic, numbers, start).items():
            self.total += high - at
            if high > at:
                self._open.add(number)
            places.append(TopicPartition(self._topic, number, at))
        self._consumer.assign(places)

    def batches(self, *, follow: bool, idle_s: float | None = None) -> Iterator[list[Any]]:
        """Until every partition's end was reached once, or for ever with `follow`. A batch is empty when a poll brought no
        record: the caller may stop there.
        """
        from confluent_kafka import KafkaError, KafkaException

        from ottla.cli.kafka.client_properties import next_batch

        last = time.monotonic()
        while follow or self._open:
            messages = []
            for message in next_batch(self._consumer, _BATCH, 0.2):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == LocalError.PARTITION_EOF:
                    self._open.discard(message.partition())
                elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # librdkafka needs a group's name and looks for its coordinator; nothing here uses the group
                elif error.fatal() or not error.retriable():
                    raise KafkaException(error)
            if messages:
                last = time.monotonic()
            elif idle_s is not None and time.monotonic() - last > idle_s:
                return
            yield messages

    def mark_read(self, message: Any) -> None:
        """Nothing is committed without a group."""

    def close(self) -> None:
        self._consumer.close()


def starting_offsets(consumer: Any, topic: str, partitions: list[int], start: When) -> dict[int, tuple[int, int]]:
    """For each partition the offset that `start` means there, and the partition's end."""
    from confluent_kafka import TopicPartition

    from ottla.client.watermarks import watermarks

    times = {}
    if start.timestamp_ms is not None and partitions:
        time_queries = [TopicPartition(topic, number, start.timestamp_ms) for number in partitions]
        times = {place.partition: place.offset for place in consumer.offsets_for_times(time_queries, timeout=15)}
    offsets = {}
    for number in partitions:
        low, high = watermarks(consumer, topic, number, 15)
        at = low
        if start.end:
            at = high
        elif start.offset is not None:
            at = min(max(start.offset, low), high)
        elif start.timestamp_ms is not None:
            at = times[number] if times[number] >= 0 else high
        offsets[number] = (at, high)
    return offsets
