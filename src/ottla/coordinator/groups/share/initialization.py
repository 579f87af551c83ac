"""Which share-partitions have a state with the share coordinator: initializing, initialized, or deleting.

A partition is assigned to members only once its state is initialized. A request without an answer is sent again after
group.share.initialize.retry.interval.ms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.share.group import SharedTopic, ShareGroup
from ottla.coordinator.groups.share.group_records import state_partitions_record
from ottla.coordinator.records import GroupKindRecord
from ottla.metadata.image import MetadataImage
from ottla.model.ids import Uuid

UNKNOWN_START_OFFSET = -1
_UNKNOWN = "<UNKNOWN>"

Indexes = Mapping[Uuid, frozenset[int]]


class StateRequest(NamedTuple):
    """Share-partitions for which the share coordinator must create a state, with their start offsets."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]


def missing(group: ShareGroup, topics: Iterable[str], context: ShardContext) -> dict[Uuid, SharedTopic]:
    """Partitions of these topics without a state and without a recent request for a state."""
    now_ms = context.clock.time_ms()
    retry_ms = context.settings.group_share_initialize_retry_interval_ms
    uninitialized: dict[Uuid, SharedTopic] = {}
    for name in sorted(topics):
        topic = context.image.topics_by_name.get(name)
        if topic is None:
            continue
        partitions = _partitions(group.initialized, topic.id)
        requested = group.initializing.get(topic.id)
        if requested is not None and not context.has_passed(requested.since_ms, retry_ms):
            partitions |= requested.partitions
        if len(partitions) < len(topic.partitions):
            uninitialized[topic.id] = SharedTopic(name, frozenset(topic.partitions) - partitions, now_ms)
    return uninitialized


def initializing_record(group: ShareGroup, topics: Mapping[Uuid, SharedTopic], image: MetadataImage) -> GroupKindRecord:
    deleting = _named(group.deleting - topics.keys(), image)
    return state_partitions_record(group.group_id, _joined(group.initializing, topics), group.initialized, deleting)


def initialized_record(group: ShareGroup, partitions: Indexes, context: ShardContext) -> GroupKindRecord:
    """The states are initialized. A topic that was deleted during the request to the share coordinator stays out."""
    now_ms = context.clock.time_ms()
    topics = context.image.topics_by_id
    initialized = {
        topic_id: SharedTopic(topics[topic_id].name, indexes, now_ms)
        for topic_id, indexes in partitions.items()
        if topic_id in topics
    }
    return state_partitions_record(
        group.group_id,
        _without(group.initializing, partitions),
        _joined(group.initialized, initialized),
        _named(group.deleting, context.image),
    )


def uninitialized_record(group: ShareGroup, partitions: Indexes, context: ShardContext) -> GroupKindRecord:
    """They could not be initialized: the next heartbeat asks again."""
    return state_partitions_record(
        group.group_id,
        _without(group.initializing, partitions),
        group.initialized,
        _named(group.deleting, context.image),
    )


def deleting_record(
    group: ShareGroup, topics: Collection[Uuid], context: ShardContext, *, whole_group: bool = False
) -> GroupKindRecord:
    """The states of these topics are going."""
    initialized = {topic_id: topic for topic_id, topic in group.initialized.items() if topic_id not in topics}
    deleting = _named(group.deleting | frozenset(topics), context.image)
    initializing = {} if whole_group else group.initializing
    return state_partitions_record(group.group_id, initializing, {} if whole_group else initialized, deleting)


def deleted_record(group: ShareGroup, topics: Collection[Uuid], context: ShardContext) -> GroupKindRecord:
    deleting = _named(group.deleting - frozenset(topics), context.image)
    return state_partitions_record(group.group_id, group.initializing, group.initialized, deleting)


def forgotten_record(group: ShareGroup, topics: Collection[Uuid], context: ShardContext) -> GroupKindRecord | None:
    """The topics are gone; None when the group had none of them."""
    deleted_ids = frozenset(topics)
    if not deleted_ids & (group.initializing.keys() | group.initialized.keys() | group.deleting):
        return None
    return state_partitions_record(
        group.group_id,
        {topic_id: topic for topic_id, topic in group.initializing.items() if topic_id not in deleted_ids},
        {topic_id: topic for topic_id, topic in group.initialized.items() if topic_id not in deleted_ids},
        _named(group.deleting - deleted_ids, context.image),
    )


def is_assignment_due(group: ShareGroup) -> bool:
    """Whether partitions got or lost their state since the last assignment."""
    if not group.members or not group.initialized:
        return False
    assigned: dict[Uuid, set[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return any(
        topic.name in group.topics and assigned.get(topic_id) != set(topic.partitions)
        for topic_id, topic in group.initialized.items()
    )


def _partitions(topics: Mapping[Uuid, SharedTopic], topic_id: Uuid) -> frozenset[int]:
    topic = topics.get(topic_id)
    return frozenset() if topic is None else topic.partitions


def _joined(older: Mapping[Uuid, SharedTopic], newer: Mapping[Uuid, SharedTopic]) -> dict[Uuid, SharedTopic]:
    joined = dict(older)
    for topic_id, topic in newer.items():
        joined[topic_id] = topic._replace(partitions=topic.partitions | _partitions(older, topic_id))
    return joined


def _without(topics: Mapping[Uuid, SharedTopic], partitions: Indexes) -> dict[Uuid, SharedTopic]:
    remaining = {
        topic_id: topic._replace(partitions=topic.partitions - partitions.get(topic_id, frozenset()))
        for topic_id, topic in topics.items()
    }
    return {topic_id: topic for topic_id, topic in remaining.items() if topic.partitions}


def _named(topic_ids: Iterable[Uuid], image: MetadataImage) -> dict[Uuid, str]:
    topics = image.topics_by_id
    return {topic_id: topics[topic_id].name if topic_id in topics else _UNKNOWN for topic_id in sorted(topic_ids)}
