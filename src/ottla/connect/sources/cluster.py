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
from ottla.connect.positions import BoundPosition, cut_offset, restarts_recreated, still_there
from ottla.connect.remote_topics import RemoteTopics, cluster_settings, ensure_topic
from ottla.connect.topic_settings import TopicSettingsSync
from ottla.model.ids import TopicPartition
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.topics import READ_COMMITTED, LedPartition, TopicMetadata, settings_from

OFFSET_HEADERS = ("__mirror.topic", "__mirror.partition", "__mirror.offset")
"""Where a record came from, with `offset.headers.enabled`."""
TOPICS = "@topics"
"""The key of a place, which no partition has, for the ids and leader epochs of topics."""


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
        self._restart = restarts_recreated(config)
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
        if not self._partitions_are_there():
            self._looked_at = None
            self._look()
        self._check(places)
        first = self._metadata.offsets(dict.fromkeys(self._partitions, EARLIEST))
        ends = self._metadata.offsets(dict.fromkeys(self._partitions, LATEST), isolation_level=READ_COMMITTED)
        states = self._metadata.states({partition.topic for partition in self._partitions})
        changes: list[Change] = []
        for partition in self._partitions:
            begin = max(int(places.get(str(partition), 0)), self._passed.get(partition, 0), first[partition] or 0)
            end, state = ends[partition] or 0, states[partition]
            if places[TOPICS].get(partition.topic, {}).get("id", state.topic_id) != state.topic_id:
                continue  # created again after the check: the next poll reports that
            while begin < end and len(changes) < self._most:
                upto = min(end, begin + self._most - len(changes))
                changes += self._read(partition, begin, upto, state)
                begin = self._passed[partition] = upto
                places[str(partition)] = upto
                facts = places[TOPICS].setdefault(partition.topic, {"id": state.topic_id, "epochs": {}})
                facts["epochs"][str(partition.partition)] = state.leader_epoch
        if changes:
            changes[-1].place = places
        return changes

    def close(self) -> None:
        self._metadata.close()

    def _check(self, places: Place) -> None:
        """Compares the stored topic ids, epochs and ends with the source cluster's; may move positions by option."""
        places[TOPICS] = {
            topic: {**facts, "epochs": {**facts["epochs"]}} for topic, facts in places.get(TOPICS, {}).items()
        }
        stored = {}
        for partition in self._partitions:
            facts = places[TOPICS].get(partition.topic, {"id": "", "epochs": {}})
            if str(partition) in places:
                epoch = facts["epochs"].get(str(partition.partition), -1)
                offset = int(places[str(partition)])
                stored[partition] = BoundPosition(offset=offset, topic_id=facts["id"], leader_epoch=epoch)
        states = self._metadata.states({partition.topic for partition in self._partitions})
        for partition, now in still_there(self._metadata, stored, states, restart=self._restart).items():
            facts = places[TOPICS].setdefault(partition.topic, {"id": now.topic_id, "epochs": {}})
            if facts["id"] != now.topic_id:
                facts.update(id=now.topic_id, epochs={})
                self._forget(places, partition.topic)
            if now.offset != stored[partition].offset:
                self._passed.pop(partition, None)
            places[str(partition)] = now.offset
            facts["epochs"][str(partition.partition)] = now.leader_epoch
        ends = self._metadata.offsets(dict.fromkeys(stored, LATEST)) if stored else {}
        for partition, end in ends.items():
            if (end or 0) < int(places[str(partition)]):
                self._passed.pop(partition, None)
                places[str(partition)] = cut_offset(partition, places[str(partition)], end or 0, restart=self._restart)

    def _partitions_are_there(self) -> bool:
        """False after a topic was created again with fewer partitions."""
        return set(self._partitions) <= set(self._metadata.states({partition.topic for partition in self._partitions}))

    def _forget(self, places: Place, topic: str) -> None:
        """The partitions of a topic that was deleted: the new topic may have fewer."""
        for key in [key for key in places if key.rpartition("-")[0] == topic]:
            del places[key]
        self._passed = {partition: offset for partition, offset in self._passed.items() if partition.topic != topic}

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

    def _read(self, partition: TopicPartition, start: int, end: int, state: LedPartition) -> Iterator[Change]:
        plan = FetchPlan(
            topic=partition.topic,
            partition=partition.partition,
            start=start,
            end=end,
            isolation_level=READ_COMMITTED,
            with_headers=True,
            topic_id=state.topic_id,
            leader_epoch=state.leader_epoch,
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
