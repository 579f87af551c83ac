"""Topics of another Kafka or Ottla cluster as a source: MirrorMaker's idea and names, exactly once.

Records keep key, value, headers, timestamp and partition. The place is the next offset of each partition there; it is
committed in one transaction with the records here. Only committed records are read.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ottla.connect.clients import quiet
from ottla.connect.config import flag, number
from ottla.connect.connector import Change, Place, Source
from ottla.connect.remote_topics import RemoteTopics, cluster_settings, ensure_topic
from ottla.connect.topic_settings import TopicSettingsSync
from ottla.model.ids import TopicPartition
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.topics import READ_COMMITTED, TopicMetadata, settings_from

OFFSET_HEADERS = ("__mirror.topic", "__mirror.partition", "__mirror.offset")
"""Where a record came from, with `offset.headers.enabled`."""


class ClusterSource(Source):
    """source.cluster.bootstrap.servers (and further source.cluster.* client settings), topics, topics.exclude,
    source.cluster.alias, replication.policy.class, refresh.topics.interval.seconds, batch.max.rows,
    offset.headers.enabled, sync.topic.configs.enabled and what else topic_settings reads."""

    raw_records: ClassVar[bool] = True

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._client = quiet(cluster_settings(config, "source"))
        self._settings = settings_from(self._client, "ottla-mirror")
        self._topic_settings = TopicSettingsSync(config)
        self._topics = RemoteTopics(config)
        self._most = number(config, "batch.max.rows", 5000)
        self._refresh_s = number(config, "refresh.topics.interval.seconds", 600)
        self._with_offsets = flag(config, "offset.headers.enabled", default=False)
        self._metadata = TopicMetadata(self._settings)
        self._target: Mapping[str, str] = {}
        self._partitions: list[TopicPartition] = []
        self._looked_at: float | None = None
        self._made: dict[str, int] = {}
        self._passed: dict[TopicPartition, int] = {}
        """Offsets that held nothing to give out: markers and aborted records."""

    def begin(self, target: Mapping[str, str]) -> None:
        self._target = target

    def poll(self, after: Place | None) -> Sequence[Change]:
        self._look()
        if not self._partitions:
            return []
        places: Place = dict(after or {})
        first = self._metadata.offsets(dict.fromkeys(self._partitions, EARLIEST))
        ends = self._metadata.offsets(dict.fromkeys(self._partitions, LATEST), isolation_level=READ_COMMITTED)
        changes: list[Change] = []
        for partition in self._partitions:
            begin = max(int(places.get(str(partition), 0)), self._passed.get(partition, 0), first[partition] or 0)
            end = ends[partition] or 0
            while begin < end and len(changes) < self._most:
                upto = min(end, begin + self._most - len(changes))
                changes += self._read(partition, begin, upto)
                begin = self._passed[partition] = upto
                places[str(partition)] = upto
        if changes:
            changes[-1].place = places
        return changes

    def close(self) -> None:
        self._metadata.close()

    def _look(self) -> None:
        """Which topics there are; new ones are made here before their first record, and settings follow those there."""
        self._look_for_topics()
        if self._topic_settings.is_due():
            self._topic_settings.sync(
                self._client, self._target, {topic: self._topics.name(topic) for topic in self._made}
            )

    def _look_for_topics(self) -> None:
        if self._looked_at is not None and time.monotonic() - self._looked_at < self._refresh_s:
            return
        chosen = self._topics.chosen(self._metadata.topics_like(".*"))
        self._partitions = sorted(self._metadata.partitions(chosen)) if chosen else []
        for topic in chosen:
            count = sum(partition.topic == topic for partition in self._partitions)
            if self._made.get(topic) != count:
                settings = functools.partial(self._topic_settings.of, self._client, topic)
                ensure_topic(self._target, self._topics.name(topic), count, settings)
                self._made[topic] = count
        self._looked_at = time.monotonic()

    def _read(self, partition: TopicPartition, start: int, end: int) -> Iterator[Change]:
        plan = FetchPlan(
            topic=partition.topic,
            partition=partition.partition,
            start=start,
            end=end,
            isolation_level=READ_COMMITTED,
            with_headers=True,
        )
        for batch in read_range(self._settings, plan):
            for record in batch.to_pylist():
                yield self._change(partition, record)

    def _change(self, partition: TopicPartition, record: dict[str, Any]) -> Change:
        headers = [(header["key"], header["value"]) for header in record["headers"] or []]
        if self._with_offsets:
            facts = (partition.topic, partition.partition, record["offset"])
            headers += [(name, str(fact).encode()) for name, fact in zip(OFFSET_HEADERS, facts, strict=True)]
        return Change(
            topic=self._topics.name(partition.topic),
            key=record["key"],
            value=record["value"],
            headers=headers,
            timestamp_ms=int(record["timestamp"].timestamp() * 1000),
            partition=partition.partition,
        )
