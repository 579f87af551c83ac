"""What each record of a share group does to it. Nothing else changes one.

A tombstone for something that is not there does nothing: compaction may have taken what it belonged to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.coordinator.groups.share import group_records
from ottla.coordinator.groups.share.group import SharedTopic, ShareGroup
from ottla.coordinator.groups.share.members import LEAVE_GROUP_EPOCH, ShareMember
from ottla.coordinator.groups.shelf import Shelf
from ottla.coordinator.records import GroupKindRecord
from ottla.protocol.primitives import Message

_NO_TARGET_EPOCH = -1


class ShareReplay:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._handlers: dict[str, Callable[[Any, Any], None]] = {
            "ShareGroupMetadataKey": self._group,
            "ShareGroupMemberMetadataKey": self._member,
            "ShareGroupTargetAssignmentMetadataKey": self._target_epoch,
            "ShareGroupTargetAssignmentMemberKey": self._target,
            "ShareGroupCurrentMemberAssignmentKey": self._current,
            "ShareGroupStatePartitionMetadataKey": self._state_partitions,
        }

    def replay(self, record: GroupKindRecord) -> None:
        handler = self._handlers.get(type(record.key).__name__)
        if handler is not None:
            handler(record.key, record.value)

    def _find(self, key: Any, value: Message | None) -> ShareGroup | None:
        """The group; a record that is no tombstone makes it."""
        group = self._shelf.groups.get(key.group_id)
        if isinstance(group, ShareGroup):
            return group
        if value is None:
            return None
        made = self._shelf.groups[key.group_id] = ShareGroup(key.group_id)
        return made

    def _group(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            del self._shelf.groups[key.group_id]
        else:
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash

    def _member(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            group.remove(key.member_id)
        else:
            member = group.members.get(key.member_id) or ShareMember(key.member_id)
            group.put(group_records.with_metadata(member, value))

    def _target_epoch(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is not None:
            group.assignment_epoch = _NO_TARGET_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _target(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            group.targets.pop(key.member_id, None)
        else:
            group.targets[key.member_id] = group_records.target_from(value)

    def _current(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        member = group.members.get(key.member_id)
        if value is not None:
            group.put(group_records.with_assignment(member or ShareMember(key.member_id), value))
        elif member is not None:
            gone = LEAVE_GROUP_EPOCH
            group.put(replace(member, member_epoch=gone, previous_member_epoch=gone, assigned={}))

    def _state_partitions(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        group.has_state_partitions = value is not None
        now_ms = self._shelf.clock.time_ms()
        group.initializing = {} if value is None else _topics(value.initializing_topics, now_ms)
        group.initialized = {} if value is None else _topics(value.initialized_topics, now_ms)
        group.deleting = frozenset() if value is None else frozenset(each.topic_id for each in value.deleting_topics)


def _topics(topics: list[Any], now_ms: int) -> dict[Any, SharedTopic]:
    return {each.topic_id: SharedTopic(each.topic_name, frozenset(each.partitions), now_ms) for each in topics}
