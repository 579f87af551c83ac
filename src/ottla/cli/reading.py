"""Records of a topic from a place to another, for consume and export: no group, no commits, every partition watched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.cli.connecting import Target
    from ottla.cli.when import When

_BATCH = 500


class Reading:
    """`total` is how many offsets lay between the start and the ends that were there at the beginning."""

    def __init__(
        self, target: Target, topic: str, start: When, partition: int | None = None, group: str | None = None
    ) -> None:
        from confluent_kafka import Consumer

        self._group = group
        more: dict[str, object] = {"group.id": group or "ottla", "enable.partition.eof": True}
        if group is None:
            more |= {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        else:
            more |= {"auto.offset.reset": "earliest" if start.beginning or start.stored else "latest"}
        self._consumer = Consumer(target.librdkafka(producer=False, **more))
        self._topic = topic
        self.total = 0
        self._open: set[int] = set()
        if group is not None:
            self._consumer.subscribe([topic])
            return
        self._assign(start, partition)

    def _assign(self, start: When, partition: int | None) -> None:
        from confluent_kafka import TopicPartition

        from ottla.client.watermarks import watermarks

        found = self._consumer.list_topics(self._topic, timeout=15).topics[self._topic]
        if found.error is not None:
            raise ValueError(f"{self._topic}: {found.error.str()}")
        numbers = sorted(found.partitions) if partition is None else [partition]
        if partition is not None and partition not in found.partitions:
            raise ValueError(f"{self._topic} has no partition {partition}; it has {len(found.partitions)}")
        places = []
        times = {}
        if start.timestamp_ms is not None:
            asked = [TopicPartition(self._topic, number, start.timestamp_ms) for number in numbers]
            times = {place.partition: place.offset for place in self._consumer.offsets_for_times(asked, timeout=15)}
        for number in numbers:
            low, high = watermarks(self._consumer, self._topic, number, 15)
            at = low
            if start.end:
                at = high
            elif start.offset is not None:
                at = min(max(start.offset, low), high)
            elif start.timestamp_ms is not None:
                at = times[number] if times[number] >= 0 else high
            self.total += high - at
            if high > at:
                self._open.add(number)
            places.append(TopicPartition(self._topic, number, at))
        self._consumer.assign(places)

    def batches(self, *, follow: bool, idle_s: float | None = None) -> Iterator[list[Any]]:
        """Until every partition's end was reached once, or for ever with `follow`."""
        from confluent_kafka import KafkaError, KafkaException

        from ottla.cli.kafka.client_properties import next_batch

        last = time.monotonic()
        while follow or self._group is not None or self._open:
            found = []
            for message in next_batch(self._consumer, _BATCH, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._open.discard(message.partition())
                elif error.fatal() or not error.retriable():
                    raise KafkaException(error)
            if found:
                last = time.monotonic()
                yield found
            elif idle_s is not None and time.monotonic() - last > idle_s:
                return

    def close(self) -> None:
        self._consumer.close()
