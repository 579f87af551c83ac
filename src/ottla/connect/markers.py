"""Markers of exactly-once writes: committed offsets that say which version of a task's work is in its topics.

All markers of an application (a query) are in the group `ottla-markers-APPLICATION`, on partitions of the topic
`__ottla_exactly_once`: the committed offset of partition `task` is `version + 1`. A broker accepts offsets of partitions
that exist only, so every 16 tasks share a group: tasks from 16 on are in `ottla-markers-APPLICATION.1` and so on.

Version 1 of the format is a group `ottla-APPLICATION-TASK` for each task, on partition 0 of the output topic. Such a marker
counts until the task has a marker of version 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.connect.clients import librdkafka_settings
from ottla.connect.sender import TIMEOUT_S, call
from ottla.model.marker_groups import MARKER_PREFIX, MARKER_TOPIC
from ottla.model.user_error import UserError

TASKS_IN_A_GROUP = 16
_FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    version: int
    rows: int = -1
    """-1 if the marker does not store it."""
    size: int = -1
    identities: int | None = None
    """A checksum of what identifies the rows; None if the marker does not store it."""

    def to_json(self) -> str:
        content = {"rows": self.rows, "bytes": self.size, "identities": self.identities}
        return json.dumps({"format": _FORMAT, "version": self.version, **content})

    @classmethod
    def from_offset(cls, offset: int, metadata: str | None) -> Marker | None:
        if offset < 0:
            return None
        stored = json.loads(metadata or "{}")
        if stored.get("format", 1) > _FORMAT:
            raise UserError(
                f"a marker has the format {stored['format']}, this Ottla reads up to {_FORMAT}: upgrade Ottla"
            )
        return cls(
            version=offset - 1,
            rows=int(stored.get("rows", -1)),
            size=int(stored.get("bytes", -1)),
            identities=stored.get("identities"),
        )


def group_of(application: str, task: int) -> str:
    number = task // TASKS_IN_A_GROUP
    return f"{MARKER_PREFIX}{application}" + (f".{number}" if number else "")


def read_marker(consumer: Any, task: int) -> Marker | None:
    """`consumer` has the task's group."""
    from confluent_kafka import TopicPartition

    place = TopicPartition(MARKER_TOPIC, task % TASKS_IN_A_GROUP)
    row = call(consumer.committed, [place], TIMEOUT_S)[0]
    if row.error is not None:
        raise UserError(f"the marker of task {task} cannot be read: {row.error.str()}")
    return Marker.from_offset(row.offset, row.metadata)


def read_version_1(client: Mapping[str, str], application: str, task: int, topic: str) -> Marker | None:
    return next(
        (marker for _, marker in _offsets(_admin(client), f"ottla-{application}-{task}", topic, stable=True)), None
    )


def markers_of(client: Mapping[str, str], application: str, *, stable: bool = True) -> dict[int, Marker]:
    """By task, in format 2. `stable` awaits the end of transactions that hold a marker.

    Groups may be missing in their sequence (tasks without rows), so they are listed.
    """
    admin = _admin(client)
    own = f"{MARKER_PREFIX}{application}"
    markers: dict[int, Marker] = {}
    for group in _listed(admin):
        name, _, number = group.removeprefix(own).partition(".")
        if group.startswith(own) and not name and (number.isdecimal() or not number):
            first = int(number or 0) * TASKS_IN_A_GROUP
            markers |= {
                first + partition: marker for partition, marker in _offsets(admin, group, MARKER_TOPIC, stable=stable)
            }
    return markers


def forget_markers(client: Mapping[str, str], query_id: str) -> list[str]:
    """Deletes the markers of a query, in both formats, and returns the names of the groups. The query must not run."""
    admin = _admin(client)
    groups = [group for group in _listed(admin) if group.startswith("ottla-") and query_id in group]
    for group, deleted in admin.delete_consumer_groups(groups).items() if groups else ():
        _result(deleted, f"the group {group} cannot be deleted")
    return groups


def ensure_marker_topic(client: Mapping[str, str]) -> None:
    ensure_compacted_topic(client, MARKER_TOPIC, TASKS_IN_A_GROUP)


def ensure_compacted_topic(client: Mapping[str, str], name: str, partitions: int = 1) -> None:
    """A topic of our own that stores state. A topic of an earlier version gets the partitions that are missing."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]
    from confluent_kafka.cimpl import KafkaError, NewTopic

    admin = _admin(client)
    topic = admin.list_topics(timeout=TIMEOUT_S).topics.get(name)
    if topic is not None and len(topic.partitions) >= partitions:
        return
    try:
        if topic is None:
            created = admin.create_topics([NewTopic(name, partitions, config={"cleanup.policy": "compact"})])
        else:
            created = admin.create_partitions([NewPartitions(name, partitions)])
        created[name].result(TIMEOUT_S)
    except KafkaException as problem:
        present = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS)
        if problem.args[0].code() not in present:  # a different task has done the same
            raise UserError(
                f"the topic {name} cannot be created with {partitions} partitions: {problem.args[0].str()}"
            ) from problem


def _admin(client: Mapping[str, str]) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient(librdkafka_settings(client))


def _listed(admin: Any) -> list[str]:
    listed = _result(admin.list_consumer_groups(), "the groups cannot be listed")
    if listed.errors:
        raise UserError(f"the groups cannot be listed: {listed.errors[0]}")
    return sorted(group.group_id for group in listed.valid)


def _offsets(admin: Any, group: str, topic: str, *, stable: bool) -> Iterator[tuple[int, Marker]]:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    def committed_offsets() -> list[Any]:
        request = [ConsumerGroupTopicPartitions(group)]
        answer = admin.list_consumer_group_offsets(request, require_stable=stable)[group].result(TIMEOUT_S)
        rows = [row for row in answer.topic_partitions if row.topic == topic]
        for row in rows:
            if row.error is not None:
                raise KafkaException(row.error)
        return rows

    for row in call(committed_offsets):
        marker = Marker.from_offset(row.offset, row.metadata)
        if marker is not None:
            yield row.partition, marker


def _result(future: Any, problem_text: str) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(TIMEOUT_S)
    except KafkaException as problem:
        raise UserError(f"{problem_text}: {problem.args[0].str()}") from problem
