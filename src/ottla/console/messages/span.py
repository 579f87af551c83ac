"""Which part of a topic is meant: per partition from one offset to another, and how a reader goes through it.

A span is fixed when it is made: its end is the topic's end at that moment, so that reading it ends. What stands between
may have gaps (compaction, transaction markers); a partition is done when the client has reached its end, not when a
record of the last offset was seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ottla.client.librdkafka_errors import LocalError
from ottla.client.settings import ClientSettings
from ottla.client.watermarks import leader_moves
from ottla.console.errors import ConsoleError
from ottla.console.messages.masked import MaskedReader
from ottla.console.messages.reach import Client, Reach, reach_of
from ottla.console.messages.wire_reader import WireReader

_WAIT_S = 10.0
_LEADER_WAIT_S = 3.0
"""For one leader to answer before the metadata is asked who leads now: it may have died."""
_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Stretch:
    start: int
    end: int

    @property
    def length(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class TopicSpan:
    topic: str
    stretches: Mapping[int, Stretch]
    low: Mapping[int, int]
    leaderless: tuple[int, ...] = ()
    """Partitions that are left out because they have no leader now."""

    @property
    def length(self) -> int:
        return sum(stretch.length for stretch in self.stretches.values())

    def last(self, count: int) -> TopicSpan:
        """The newest `count` offsets, shared out evenly over the partitions that have any."""
        busy = [index for index, stretch in self.stretches.items() if stretch.length]
        share = max(1, -(-count // len(busy))) if busy else 0
        return self._with({i: Stretch(max(s.start, s.end - share), s.end) for i, s in self.stretches.items()})

    def first(self, count: int) -> TopicSpan:
        """At most `count` offsets of each partition from its start."""
        return self._with({i: Stretch(s.start, min(s.end, s.start + count)) for i, s in self.stretches.items()})

    def _with(self, stretches: Mapping[int, Stretch]) -> TopicSpan:
        return replace(self, stretches=stretches)


@contextmanager
def consumer(client: Client, **more: Any) -> Iterator[Any]:
    """A reader without a group: nothing that it does is committed or seen by others.

    With the rights and through the masks of `client`; there is no other way to a message in the console.
    """
    reach = reach_of(client)
    with _wire_reader(reach.acting) if reach.acting is not None else _librdkafka_reader(reach, more) as reader:
        yield reader if reach.decoder is None else MaskedReader(reader, reach.mask_of, reach.decoder)


@contextmanager
def _wire_reader(settings: ClientSettings) -> Iterator[Any]:
    reader = WireReader(settings)
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def _librdkafka_reader(reach: Reach, more: Mapping[str, Any]) -> Iterator[Any]:
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {
        "group.id": "ottla-console-reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        # Of each partition; a message that waits costs the client about half a KiB besides its bytes.
        "queued.min.messages": 10_000,
        "queued.max.messages.kbytes": 8 * 1024,
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        "fetch.wait.max.ms": 100,
        "log_level": 0,
        **reach.librdkafka,
        **more,
    }
    reader = Consumer(settings, logger=None)
    try:
        yield reader
    finally:
        reader.close()


def whole(
    reader: Any, topic: str, partitions: frozenset[int] = frozenset(), *, as_far_as_led: bool = False
) -> TopicSpan:
    """Everything of the topic (or of some partitions) that is there now.

    ConsoleError when a partition has no leader, so that nothing is missed in silence; with `as_far_as_led` it is left
    out, as long as there are others.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return _whole_now(reader, topic, partitions, as_far_as_led=as_far_as_led)
        except KafkaException as error:
            if not leader_moves(error.args[0]) or time.monotonic() > deadline:
                raise ConsoleError(f"cannot read {topic}: {error.args[0].str()}", status=503) from error
        time.sleep(_AGAIN_S)


def _whole_now(reader: Any, topic: str, partitions: frozenset[int], *, as_far_as_led: bool) -> TopicSpan:
    from confluent_kafka import TopicPartition

    metadata = reader.list_topics(topic, timeout=_WAIT_S).topics[topic]
    if metadata.error is not None:
        raise ConsoleError(f"topic {topic}: {metadata.error.str()}", status=404)
    indexes = [index for index in sorted(metadata.partitions) if not partitions or index in partitions]
    leaderless = tuple(index for index in indexes if metadata.partitions[index].leader < 0)
    if leaderless and not (as_far_as_led and len(leaderless) < len(indexes)):
        named = ", ".join(map(str, leaderless))
        raise ConsoleError(
            f"No broker leads partition {named} of {topic} now, so the topic cannot be read completely. Choose another partition, "
            "or look at the brokers.",
            status=503,
        )
    stretches = {}
    for index in (index for index in indexes if index not in leaderless):
        low, high = reader.get_watermark_offsets(TopicPartition(topic, index), timeout=_LEADER_WAIT_S)
        stretches[index] = Stretch(low, high)
    return TopicSpan(topic, stretches, {index: stretch.start for index, stretch in stretches.items()}, leaderless)


def since(reader: Any, span: TopicSpan, timestamp_ms: int) -> TopicSpan:
    """From the first record at or after a time; a partition without such a record gets an empty stretch."""
    from confluent_kafka import TopicPartition

    time_queries = [TopicPartition(span.topic, index, timestamp_ms) for index in span.stretches]
    starts = {answer.partition: answer.offset for answer in reader.offsets_for_times(time_queries, timeout=_WAIT_S)}
    return replace(
        span,
        stretches={
            index: Stretch(starts[index] if starts.get(index, -1) >= 0 else stretch.end, stretch.end)
            for index, stretch in span.stretches.items()
        },
    )


def from_offset(span: TopicSpan, offset: int) -> TopicSpan:
    return replace(
        span, stretches={i: Stretch(max(s.start, min(offset, s.end)), s.end) for i, s in span.stretches.items()}
    )


class Walk:
    """Reads a span in batches, and keeps the progress."""

    def __init__(self, reader: Any, span: TopicSpan) -> None:
        from confluent_kafka import TopicPartition

        self._reader = reader
        self.span = span
        self.position = {index: stretch.start for index, stretch in span.stretches.items()}
        self._open = {index for index, stretch in span.stretches.items() if stretch.length}
        if self._open:
            reader.assign([TopicPartition(span.topic, i, span.stretches[i].start) for i in sorted(self._open)])

    @property
    def done(self) -> bool:
        return not self._open

    @property
    def offsets_read(self) -> int:
        return sum(self.position[i] - stretch.start for i, stretch in self.span.stretches.items() if stretch.length)

    def step(self, count: int, timeout_s: float) -> list[Any]:
        """The next messages of the span, in the order of each partition."""
        taken = []
        for message in self._reader.consume(count, timeout_s):
            error = message.error()
            if error is not None:
                if error.code() == LocalError.PARTITION_EOF:
                    self._reached(message.partition(), message.offset())
                    continue
                if error.retriable() or error.code() in (LocalError.TRANSPORT, LocalError.ALL_BROKERS_DOWN):
                    continue
                raise ConsoleError(f"reading {self.span.topic} failed: {error.str()}", status=503)
            index, offset = message.partition(), message.offset()
            if index in self._open:
                if offset < self.span.stretches[index].end:
                    taken.append(message)
                self._reached(index, offset + 1)
        return taken

    def _reached(self, index: int, position: int) -> None:
        if index not in self._open:
            return
        end = self.span.stretches[index].end
        self.position[index] = min(position, end)
        if position >= end:
            self._open.discard(index)
            if not self._open:
                return
            from confluent_kafka import TopicPartition

            self._reader.pause([TopicPartition(self.span.topic, index)])
