"""Replays the record that only share groups have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.coordinator.groups.assigned_group import LEAVE_GROUP_EPOCH
from ottla.coordinator.groups.assigned_replay import AssignedReplay, Handler
from ottla.coordinator.groups.share import group_records
from ottla.coordinator.groups.share.group import SharedTopic, ShareGroup
from ottla.coordinator.groups.share.members import ShareMember


class ShareReplay(AssignedReplay[ShareGroup]):
    prefix = "ShareGroup"
    records = group_records
    member_class = ShareMember
    group_class = ShareGroup

    def _more_handlers(self) -> dict[str, Handler]:
        return {"StatePartitionMetadata": self._state_partitions}

    def _without_assignment(self, member: ShareMember) -> ShareMember:
        return replace(member, member_epoch=LEAVE_GROUP_EPOCH, previous_member_epoch=LEAVE_GROUP_EPOCH, assigned={})

    def _state_partitions(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        group.has_state_partitions = value is not None
        now_ms = self._context.clock.time_ms()
        group.initializing = {} if value is None else _topics(value.initializing_topics, now_ms)
        group.initialized = {} if value is None else _topics(value.initialized_topics, now_ms)
        group.deleting = frozenset() if value is None else frozenset(topic.topic_id for topic in value.deleting_topics)


def _topics(topics: list[Any], now_ms: int) -> dict[Any, SharedTopic]:
    return {topic.topic_id: SharedTopic(topic.topic_name, frozenset(topic.partitions), now_ms) for topic in topics}
