"""Records of a topic as a member of a consumer group. A record is committed after it was printed, and never before.

All commits of `ottla consume -g` happen here. librdkafka's own commits are off: librdkafka commits records that it has
handed over, whether they were printed or not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.records.reading import starting_offsets
from ottla.client.librdkafka_errors import LocalError

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target
    from ottla.cli.records.start_position import When

_BATCH = 500
_POLL_S = 0.2
_COMMIT_TRIES = 5
_NO_PARTITION_S = 5.0
"""How long a member without a partition waits for one before it ends (`-e`)."""


class GroupReading:
    """`start` applies to partitions for which the group has committed no offset."""

    def __init__(self, target: Target, topic: str, start: When, group: str) -> None:
        from confluent_kafka import Consumer, KafkaException

        settings = target.librdkafka(producer=False)
        self._commits = str(settings.get("enable.auto.commit", "true")).lower() != "false"
        self._incremental = settings.get("group.protocol") == "consumer"
        settings |= {
            "group.id": group,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest" if start.end else "earliest",
        }
        self._topic, self._start, self._group = topic, start, group
        self._consumer = Consumer(settings)
        self._assigned: set[int] | None = None
        self._unread: set[int] = set()
        self._printed: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        try:
            self._refuse_moving_a_group()
            self._consumer.subscribe(
                [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        except (KafkaException, ValueError):
            self._consumer.close()
            raise

    def _refuse_moving_a_group(self) -> None:
        """ValueError if `--from` is a place and the group has committed offsets already."""
        from confluent_kafka import TopicPartition

        if self._start.stored:
            return
        description = self._consumer.list_topics(self._topic, timeout=15).topics[self._topic]
        if description.error is not None:
            raise ValueError(f"{self._topic}: {description.error.str()}")
        places = [TopicPartition(self._topic, number) for number in sorted(description.partitions)]
        for place in self._consumer.committed(places, timeout=15):
            if place.offset >= 0:
                raise ValueError(
                    f"--from: group {self._group} has committed offset {place.offset} of partition {place.partition} "
                    "already; use --from stored, or move the group with `ottla group reset`"
                )

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        numbers = {place.partition for place in places}
        kept = self._assigned if self._incremental and self._assigned is not None else set()
        self._assigned = kept | numbers
        self._unread |= numbers
        if self._start.offset is not None or self._start.timestamp_ms is not None:
            fresh = [place.partition for place in consumer.committed(places, timeout=15) if place.offset < 0]
            offsets = starting_offsets(consumer, self._topic, fresh, self._start)
            for place in places:
                if place.partition in offsets:
                    place.offset = offsets[place.partition][0]
        (consumer.incremental_assign if self._incremental else consumer.assign)(places)

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        del consumer
        self._commit()
        self._forget(places)

    def _on_lost(self, consumer: Any, places: list[Any]) -> None:
        del consumer
        self._forget(places)

    def _forget(self, places: list[Any]) -> None:
        for place in places:
            if self._assigned is not None:
                self._assigned.discard(place.partition)
            self._unread.discard(place.partition)
            self._printed.pop(place.partition, None)
            self._committed.pop(place.partition, None)

    def batches(self, *, follow: bool) -> Iterator[list[Any]]:
        """With `follow` for ever; else until this member has reached the end of each of its partitions once. A batch is
        empty when a poll brought no record: the caller may stop there.
        """
        idle_since = time.monotonic()
        while follow or not self._at_end(idle_since):
            yield self._poll()
            self._commit()
            if self._assigned:
                idle_since = time.monotonic()

    def _at_end(self, idle_since: float) -> bool:
        if self._assigned is None:
            return False
        if self._assigned:
            return not self._unread
        if time.monotonic() - idle_since < _NO_PARTITION_S:
            return False
        click.echo(f"group {self._group} has assigned no partition of {self._topic} to this member", err=True)
        return True

    def _poll(self) -> list[Any]:
        """At most one call that waits: a rebalance happens in such a call, and its records are printed before the next."""
        from confluent_kafka import KafkaException

        messages = self._consumer.consume(_BATCH, 0)
        if not messages and (message := self._consumer.poll(_POLL_S)) is not None:
            messages = [message]
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                if message.partition() in (self._assigned or ()):
                    records.append(message)
            elif error.code() == LocalError.PARTITION_EOF:
                self._unread.discard(message.partition())
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
        return records

    def mark_read(self, message: Any) -> None:
        """The record was printed, or the filter left it out."""
        self._printed[message.partition()] = message.offset() + 1

    def _commit(self) -> str | None:
        """Commits what was printed and is not committed; returns the reason if the broker refused it."""
        from confluent_kafka import KafkaException, TopicPartition

        due = {number: offset for number, offset in self._printed.items() if self._committed.get(number) != offset}
        if not self._commits or not due:
            return None
        places = [TopicPartition(self._topic, number, offset) for number, offset in due.items()]
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as refusal:
            return str(refusal.args[0].str())
        refused = None
        for answer in answers:
            if answer.error is None:
                self._committed[answer.partition] = due[answer.partition]
            else:
                refused = str(answer.error.str())
        return refused

    def close(self) -> None:
        """ValueError if printed records could not be committed: the group reads these records again."""
        try:
            for _ in range(_COMMIT_TRIES):
                if (refused := self._commit()) is None:
                    return
                time.sleep(_POLL_S)
            raise ValueError(f"group {self._group} reads the last records again: {refused}")
        finally:
            self._consumer.close()
