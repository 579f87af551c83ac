"""Positions of connectors in topics, each bound to the topic's id and the leader's epoch.

A topic with a new id is an error, or with `on.topic.recreated: restart` a new start at its earliest offset. A log that a
new leader cut goes on at the cut with that option and is an error without. A sink's positions are committed offsets of
its group. A broker deletes these with the topic, so the topic ids are records of the compacted `offset.storage.topic`.
Offsets of a group without members expire after `offsets.retention.minutes`: a running sink commits them again every
`offsets.keep.interval.ms`, and a sink whose offsets are gone reports that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ottla.connect.clients import consumer_settings
from ottla.connect.config import number
from ottla.connect.markers import ensure_compacted_topic
from ottla.connect.sender import Outgoing, Sender, call
from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.protocol.offset_timestamps import EARLIEST
from ottla.tables.fetch import recreated_error
from ottla.tables.query import topic_table
from ottla.tables.topics import LedPartition, TableError, TopicMetadata

_TIMEOUT_S = 60.0
_KEEP_MS = 3_600_000


def restarts_recreated(config: Mapping[str, str]) -> bool:
    return _choice(config, "on.topic.recreated")


def _choice(config: Mapping[str, str], name: str) -> bool:
    text = config.get(name, "fail")
    if text not in {"fail", "restart"}:
        raise UserError(f"{name} is fail or restart, not {text!r}")
    return text == "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPosition:
    offset: int
    topic_id: str = ""
    leader_epoch: int = -1


def still_there(
    metadata: TopicMetadata,
    stored: Mapping[TopicPartition, BoundPosition],
    states: Mapping[TopicPartition, LedPartition],
    *,
    restart: bool,
) -> dict[TopicPartition, BoundPosition]:
    """The positions as they are now: unchanged, bound to the ids of the moment, or moved as the option permits."""
    changed = {
        partition: position
        for partition, position in stored.items()
        if position.topic_id and position.topic_id != states[partition].topic_id
    }
    for partition, position in changed.items():
        if not restart:
            raise recreated_error(partition.topic, position.topic_id, states[partition].topic_id)
    first = metadata.offsets(dict.fromkeys(changed, EARLIEST)) if changed else {}
    led = {
        partition: position.leader_epoch
        for partition, position in stored.items()
        if partition not in changed and 0 <= position.leader_epoch != states[partition].leader_epoch
    }
    ends = metadata.epoch_ends(led) if led else {}
    now = {}
    for partition, position in stored.items():
        offset = first[partition] or 0 if partition in changed else position.offset
        if 0 <= ends.get(partition, -1) < offset:
            offset = cut_offset(partition, offset, ends[partition], restart=restart)
        state = states[partition]
        now[partition] = BoundPosition(offset=offset, topic_id=state.topic_id, leader_epoch=state.leader_epoch)
    return now


def cut_offset(partition: TopicPartition, offset: int, end: int, *, restart: bool) -> int:
    if not restart:
        raise TableError(
            f"{partition} ends at offset {end}, before the stored position {offset}: the log lost records or was cut by a "
            "new leader. Set on.topic.recreated to restart to go on at that end"
        )
    return end


@dataclass(slots=True, kw_only=True)
class _StoredTopic:
    """What a sink stores of a topic, in `offset.storage.topic`: a group's offsets are deleted with their topic."""

    topic_id: str
    partitions: int
    """How many partitions have committed offsets."""
    restarted: bool = False
    """The topic was created again under this sink: its works have names of their own."""


class SinkPositions:
    """The positions of one sink, in memory and in its group."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, str],
        client: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from confluent_kafka import Consumer

        self._name, self._client = name, client
        self._restart = restarts_recreated(config)
        self._restart_lost = _choice(config, "on.offsets.lost")
        self._keep_s = number(config, "offsets.keep.interval.ms", _KEEP_MS) / 1000
        self._storage = config.get("offset.storage.topic", "connect-offsets")
        self._clock = clock
        self._kept_at = clock()
        ensure_compacted_topic(client, self._storage)
        self._topics = self._read_topics()
        self._positions: dict[TopicPartition, BoundPosition] = {}
        self._consumer: Any = Consumer(consumer_settings(client, f"connect-{name}"))

    def close(self) -> None:
        self._consumer.close()

    def __getitem__(self, partition: TopicPartition) -> BoundPosition:
        return self._positions[partition]

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        return {partition: position.offset for partition, position in self._positions.items()}

    def application(self, partition: TopicPartition) -> str:
        """The name of a partition's works in the sink."""
        stored_topic = self._topics.get(partition.topic)
        return f"{self._name}.{partition}" + (
            f".{stored_topic.topic_id}" if stored_topic is not None and stored_topic.restarted else ""
        )

    def read(self, metadata: TopicMetadata, topics: Iterable[str], reached: Callable[[str], int | None]) -> None:
        """Adds the partitions that are not there yet, from the group and from what the sink has `reached`."""
        states = metadata.states(topics)
        self._check_ids(states)
        new = sorted(partition for partition in states if partition not in self._positions)
        if not new:
            return
        stored = self._stored(new, reached)
        first = metadata.offsets(dict.fromkeys(new, EARLIEST))
        now = still_there(metadata, stored, states, restart=self._restart)
        for partition in new:
            offset = max(now[partition].offset, first[partition] or 0)
            self._positions[partition] = replace(now[partition], offset=offset)
        self._commit(new)
        self._write_topics({partition.topic for partition in new})  # before the first record reaches the sink

    def check(self, metadata: TopicMetadata, states: Mapping[TopicPartition, LedPartition]) -> None:
        """Compares topic ids and epochs. A restart by option forgets the topic: `read` begins at its earliest offset."""
        self._check_ids(states)
        stored = {partition: self[partition] for partition in states if partition in self._positions}
        self._positions.update(still_there(metadata, stored, states, restart=self._restart))

    def cut(self, partition: TopicPartition, end: int) -> None:
        self._move(partition, cut_offset(partition, self[partition].offset, end, restart=self._restart), -1)

    def commit(self, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        """The epoch is the leader's after `offset` was listed."""
        self._move(partition, offset, leader_epoch)
        self._commit([partition])

    def keep_due(self) -> bool:
        return self._clock() - self._kept_at >= self._keep_s

    def keep(self) -> None:
        """Commits all positions again, so that the broker does not expire them."""
        self._commit(self._positions)
        self._kept_at = self._clock()

    def _check_ids(self, states: Mapping[TopicPartition, LedPartition]) -> None:
        ids = {partition.topic: state.topic_id for partition, state in states.items()}
        for topic, topic_id in ids.items():
            stored_topic = self._topics.get(topic)
            if stored_topic is None or stored_topic.topic_id == topic_id:
                continue
            if not self._restart:
                raise recreated_error(topic, stored_topic.topic_id, topic_id)
            self._topics[topic] = _StoredTopic(topic_id=topic_id, partitions=0, restarted=True)
            self._positions = {
                partition: position for partition, position in self._positions.items() if partition.topic != topic
            }

    def _stored(
        self, partitions: list[TopicPartition], reached: Callable[[str], int | None]
    ) -> dict[TopicPartition, BoundPosition]:
        from confluent_kafka import TopicPartition as Place

        rows = call(self._consumer.committed, [Place(*partition) for partition in partitions], _TIMEOUT_S)
        stored = {}
        for partition, row in zip(partitions, rows, strict=True):
            if row.error is not None:
                raise UserError(f"the committed offset of {partition} cannot be read: {row.error.str()}")
            last = reached(self.application(partition))
            stored_topic = self._topics.get(partition.topic)
            if (
                row.offset < 0
                and last is None
                and stored_topic is not None
                and partition.partition < stored_topic.partitions
            ):
                self._lost(partition)
            epoch = -1 if row.leader_epoch is None or last not in {None, row.offset - 1} else row.leader_epoch
            offset = max(row.offset, 0) if last is None else last + 1
            stored[partition] = BoundPosition(offset=offset, leader_epoch=epoch)
        return stored

    def _lost(self, partition: TopicPartition) -> None:
        if not self._restart_lost:
            raise UserError(
                f"the committed offset of {partition} in the group connect-{self._name} is gone: it expired "
                "(offsets.retention.minutes) or was deleted. Commit the right offset with ottla group reset, or set "
                "on.offsets.lost to restart to read the topic from its beginning"
            )

    def _move(self, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        self._positions[partition] = replace(self[partition], offset=offset, leader_epoch=leader_epoch)

    def _commit(self, partitions: Iterable[TopicPartition]) -> None:
        from confluent_kafka import TopicPartition as Place

        places = []
        for partition in partitions:
            position = self[partition]
            epoch: dict[str, Any] = {"leader_epoch": position.leader_epoch} if position.leader_epoch >= 0 else {}
            places.append(Place(*partition, position.offset, **epoch))
        if places:
            call(lambda: self._consumer.commit(offsets=places, asynchronous=False))

    def _read_topics(self) -> dict[str, _StoredTopic]:
        topics = {}
        for row in topic_table(self._client, self._storage).to_pylist():
            key = _json(row["key"])
            if isinstance(key, list) and len(key) == 2 and key[0] == self._name and "topic" in key[1]:
                value = _json(row["value"])
                if value is not None:
                    topics[key[1]["topic"]] = _StoredTopic(**value)
        return topics

    def _write_topics(self, topics: Iterable[str]) -> None:
        records = []
        for topic in sorted(topics):
            position = next(position for partition, position in self._positions.items() if partition.topic == topic)
            count = sum(partition.topic == topic for partition in self._positions)
            before = self._topics.get(topic)
            stored_topic = _StoredTopic(
                topic_id=position.topic_id, partitions=count, restarted=before is not None and before.restarted
            )
            if stored_topic != before:
                self._topics[topic] = stored_topic
                key = json.dumps([self._name, {"topic": topic}]).encode()
                records.append(Outgoing(self._storage, key, json.dumps(asdict(stored_topic)).encode()))
        if records:
            sender = Sender(self._client)
            sender.send(records)
            sender.flush()


def _json(data: bytes | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return None
