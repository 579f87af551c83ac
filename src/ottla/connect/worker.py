"""Runs one connector: a source's changes into topics, or a topic's records into a sink, each exactly once.

Source: the records of a poll and the place behind them are one transaction; the place is a record of the compacted topic
`offset.storage.topic`. Sink: each partition is put in pieces that begin at multiples of `flush.size`, named by topic,
partition and last offset. If a sink stores its last work, that replaces the committed offsets. Positions are bound to
topic ids and leader epochs (positions.py). `errors.tolerance: all` skips bad records, and sends them to
`errors.deadletterqueue.topic.name` if that is set.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect.config import connector_class, need, number, under, words
from ottla.connect.connector import Change, Place, RecordSink, Sink, Source
from ottla.connect.converters import ConvertError, converter
from ottla.connect.markers import ensure_compacted_topic
from ottla.connect.positions import SinkPositions, restarts_recreated
from ottla.connect.rows import RowsOf
from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.base import Work
from ottla.connect.transactions import Transactions
from ottla.connect.transforms import chain
from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.protocol.offset_timestamps import LATEST
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.query import topic_table
from ottla.tables.topics import READ_COMMITTED, TopicMetadata, check_reachable, settings_from

_POLL_S = 0.5


Progress = Callable[[int, int | None], None]
"""The number of records since the start, and the number that wait (None if a source does not report it)."""


def run_connector(
    config: Mapping[str, str],
    client: Mapping[str, str],
    *,
    once: bool,
    stopping: Callable[[], bool] = lambda: False,
    progress: Progress = lambda _count, _lag: None,
) -> int:
    """Runs until `stopping` returns True or, with `once`, until nothing is left. Returns the number of records."""
    kind = connector_class(config)
    if getattr(kind, "raw_records", False):
        config = {"key.converter": "bytes", "value.converter": "bytes", **config}
    made = kind(config)
    try:
        if isinstance(made, Source):
            return _SourceRun(made, config, client).run(once=once, stopping=stopping, progress=progress)
        if isinstance(made, Sink):
            return _SinkRun(made, config, client).run(once=once, stopping=stopping, progress=progress)
    finally:
        made.close()
    raise UserError(f"{config.get('connector.class')} is neither a Source nor a Sink")


def _waiting(ends: Mapping[TopicPartition, int | None], positions: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, (ends[partition] or 0) - position) for partition, position in positions.items())


class _Errors:
    """What happens to a record that cannot be converted or transformed."""

    def __init__(self, config: Mapping[str, str]) -> None:
        tolerance = config.get("errors.tolerance", "none")
        if tolerance not in {"none", "all"}:
            raise UserError(f"errors.tolerance is none or all, not {tolerance!r}")
        self.tolerant = tolerance == "all"
        self.name, self.kind = config.get("name", ""), config.get("connector.class", "")
        self.topic = config.get("errors.deadletterqueue.topic.name")

    def letter(
        self, change: Change, key: bytes | None, value: bytes | None, problem: Exception, stage: str
    ) -> list[Outgoing]:
        """The record as it came, with what is wrong in Kafka Connect's headers."""
        if not self.tolerant:
            where = f"{change.topic}-{change.partition} offset {change.offset}" if change.offset >= 0 else change.topic
            raise UserError(f"{where}: {problem}; set errors.tolerance to all to let such records pass") from problem
        if self.topic is None:
            return []
        facts = {
            "topic": change.topic, "partition": change.partition, "offset": change.offset, "connector.name": self.name,
            "task.id": 0, "stage": stage, "class.name": self.kind, "exception.class.name": type(problem).__name__, "exception.message": problem,
        }  # fmt: skip
        headers: list[tuple[str, str | bytes | None]] = [*change.headers]
        headers += [(f"__connect.errors.{name}", str(fact).encode()) for name, fact in facts.items()]
        return [Outgoing(self.topic, key, value, headers)]


class _SourceRun:
    def __init__(self, source: Source, config: Mapping[str, str], client: Mapping[str, str]) -> None:
        self._source = source
        self._name = need(config, "name")
        self._client = client
        self._producer = {**client, **under(config, "producer.override.")}
        self._places = config.get("offset.storage.topic", "connect-offsets")
        self._transform = chain(config)
        self._key, self._value = converter(config, "key"), converter(config, "value")
        self._errors = _Errors(config)

    def run(self, *, once: bool, stopping: Callable[[], bool], progress: Progress) -> int:
        check_reachable(self._client)
        ensure_compacted_topic(self._client, self._places)
        self._source.begin(self._client)
        transactions = Transactions(self._producer, f"connect-{self._name}")
        place, count = self._last_place(), 0
        while not stopping():
            progress(count, None)
            if transactions.renew() and self._last_place() != _stored(place):
                raise UserError(f"another worker of {self._name} has written meanwhile")
            changes = self._source.poll(place)
            if not changes:
                if once or self._source.finished():
                    return count
                time.sleep(_POLL_S)
                continue
            place = changes[-1].place or place
            records = [record for change in changes for record in self._records(change)]
            key = json.dumps([self._name, {}]).encode()
            records.append(Outgoing(self._places, key, json.dumps(_stored(place)).encode()))
            sender = transactions.begin()
            sender.send(records, leave_out_too_large=self._errors.tolerant)
            sender.flush()
            transactions.commit()
            count += len(changes)
        return count

    def _records(self, change: Change) -> list[Outgoing]:
        try:
            made = self._transform(change)
            if made is None:
                return []
            headers: list[tuple[str, str | bytes | None]] = [*made.headers]
            key, value = self._key.write(made.topic, made.key), self._value.write(made.topic, made.value)
            return [Outgoing(made.topic, key, value, headers, made.partition, made.timestamp_ms)]
        except (ConvertError, ValueError, TypeError, KeyError) as problem:
            return self._errors.letter(change, None, str(change.value).encode(), problem, "TRANSFORMATION")

    def _last_place(self) -> Place | None:
        key = json.dumps([self._name, {}]).encode()
        rows = topic_table(self._client, self._places).to_pylist()
        stored = [row["value"] for row in rows if row["key"] == key]
        return json.loads(stored[-1]) if stored and stored[-1] is not None else None


def _stored(place: Place | None) -> Any:
    """As it is read again."""
    return json.loads(json.dumps(place, default=str))


class _SinkRun:
    def __init__(self, sink: Sink, config: Mapping[str, str], client: Mapping[str, str]) -> None:
        self._sink = sink
        self._tells = _tells(sink)
        self._config = config
        self._name = need(config, "name")
        restarts_recreated(config)
        routers = [
            transform
            for transform in words(config, "transforms")
            if "Router" in config.get(f"transforms.{transform}.type", "")
        ]
        if routers and not isinstance(sink, RecordSink):
            raise UserError(f"transforms.{routers[0]}: a sink of rows has one target; table.name.format names a table")
        self._regex = config.get("topics.regex")
        self._topics = words(config, "topics") if self._regex else words(config, "topics") or [need(config, "topics")]
        self._client = client
        self._producer = {**client, **under(config, "producer.override.")}
        self._flush = number(config, "flush.size", 1000)
        self._transform = chain(config)
        self._key, self._value = converter(config, "key"), converter(config, "value")
        self._refresh_s = number(config, "consumer.override.metadata.max.age.ms", 30_000) / 1000
        self._rows = RowsOf(config)
        self._errors = _Errors(config)
        self._settings = settings_from(client, f"connect-{self._name}")

    def run(self, *, once: bool, stopping: Callable[[], bool], progress: Progress) -> int:
        self._sink.begin(self._client)
        self._positions = SinkPositions(self._name, self._config, self._client)
        count = 0
        try:
            with TopicMetadata(self._settings) as metadata:
                self._look(metadata)
                looked_at = time.monotonic()
                while not stopping():
                    if time.monotonic() - looked_at > self._refresh_s:  # partitions and topics may have come
                        self._look(metadata)
                        looked_at = time.monotonic()
                    moved = self._pass(metadata, count, stopping, progress)
                    count += moved
                    if self._positions.keep_due():
                        self._positions.keep()
                        self._sink.keep()
                    if not moved:
                        if once:
                            return count
                        time.sleep(_POLL_S)
        finally:
            self._positions.close()
        return count

    def _look(self, metadata: TopicMetadata) -> None:
        topics = metadata.topics_like(self._regex) if self._regex else self._topics
        if topics:
            self._positions.read(metadata, topics, self._sink.reached)
        self._counts = Counter(partition.topic for partition in self._positions.offsets)

    def _pass(self, metadata: TopicMetadata, count: int, stopping: Callable[[], bool], progress: Progress) -> int:
        """Everything up to the ends of the moment; returns how many records moved."""
        positions = self._positions
        topics = {partition.topic for partition in positions.offsets}
        positions.check(metadata, metadata.states(topics))
        positions.read(metadata, topics, self._sink.reached)
        ends = metadata.offsets(dict.fromkeys(positions.offsets, LATEST), isolation_level=READ_COMMITTED)
        states = metadata.states(topics)  # an epoch that is read before the ends may have ended before them
        progress(count, _waiting(ends, positions.offsets))
        moved = 0
        for partition, begin in positions.offsets.items():
            end, position = ends[partition] or 0, begin
            if states[partition].topic_id != positions[partition].topic_id:
                continue  # created again after the check: the next pass reports that
            epoch = states[partition].leader_epoch
            if end < position:
                self._check_end(metadata, partition)
            while position < end and not stopping():
                upto = min(end, (position // self._flush + 1) * self._flush)
                moved += self._put(partition, position, upto, epoch)
                position = upto
                positions.commit(partition, upto, epoch)
                progress(count + moved, _waiting(ends, positions.offsets))
        return moved

    def _check_end(self, metadata: TopicMetadata, partition: TopicPartition) -> None:
        """The last stable offset may be before a position; the end of the log may not."""
        end = metadata.offsets({partition: LATEST})[partition] or 0
        if end < self._positions[partition].offset:
            self._positions.cut(partition, end)

    def _put(self, partition: TopicPartition, start: int, end: int, leader_epoch: int) -> int:
        if not self._tells:
            # A sink that does not store its last work gets the whole piece, from the piece's first offset.
            start = start // self._flush * self._flush
        plan = FetchPlan(
            topic=partition.topic,
            partition=partition.partition,
            start=start,
            end=end,
            isolation_level=READ_COMMITTED,
            with_headers=True,
            topic_id=self._positions[partition].topic_id,
            leader_epoch=leader_epoch,
        )
        changes: list[Change] = []
        letters: list[Outgoing] = []
        raw: dict[int, tuple[bytes | None, bytes | None]] = {}
        for batch in read_range(self._settings, plan):
            for record in batch.to_pylist():
                raw[record["offset"]] = record["key"], record["value"]
                changes += self._change(record, letters)
        count = len(raw)
        work = Work(application=self._positions.application(partition), version=end - 1 if self._tells else start)
        if isinstance(self._sink, RecordSink):
            records = self._records(self._sink, self._counts[partition.topic], changes, letters)
            self._send(letters)
            if records:
                self._sink.put_records(records, work)
            return count
        rows, refused = self._rows.table(changes)
        for change, problem in refused:
            letters += self._errors.letter(change, *raw[change.offset], problem, "TASK_PUT")
        self._send(letters)
        if rows is not None:
            self._sink.put(rows, work)
        return count

    def _send(self, letters: list[Outgoing]) -> None:
        if letters:
            sender = Sender(self._producer)
            sender.send(letters)
            sender.flush()

    def _change(self, record: dict[str, Any], letters: list[Outgoing]) -> list[Change]:
        """The record as it goes to the sink; nothing when a transform drops it or it is bad."""
        change = Change(
            topic=record["topic"],
            value=None,
            headers=[(header["key"], header["value"]) for header in record["headers"] or []],
            timestamp_ms=int(record["timestamp"].timestamp() * 1000),
            partition=record["partition"],
            offset=record["offset"],
        )
        stage = "KEY_CONVERTER"
        try:
            change.key, stage = self._key.read(record["key"]), "VALUE_CONVERTER"
            change.value, stage = self._value.read(record["value"]), "TRANSFORMATION"
            made = self._transform(change)
        except (ConvertError, ValueError, TypeError, KeyError) as problem:
            letters += self._errors.letter(change, record["key"], record["value"], problem, stage)
            return []
        return [] if made is None else [made]

    def _records(
        self, sink: RecordSink, partitions: int, changes: list[Change], letters: list[Outgoing]
    ) -> list[Outgoing]:
        outgoing = []
        for change in changes:
            topic = sink.topic(change.topic, partitions)
            try:
                key, value = self._key.write(topic, change.key), self._value.write(topic, change.value)
            except (ConvertError, ValueError, TypeError, KeyError) as problem:
                letters += self._errors.letter(change, None, str(change.value).encode(), problem, "VALUE_CONVERTER")
                continue
            outgoing.append(Outgoing(topic, key, value, [*change.headers], change.partition, change.timestamp_ms))
        return outgoing


def _tells(sink: Sink) -> bool:
    """Whether the sink keeps the version of its works: it has a `reached` of its own that the table sink behind answers."""
    return getattr(getattr(sink, "sink", None), "reached", None) is not None or (
        not hasattr(sink, "sink") and type(sink).reached is not Sink.reached
    )
