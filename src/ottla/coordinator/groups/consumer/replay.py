"""What each record of a consumer group does to it. Nothing else changes one.

A tombstone for something that is not there does nothing: compaction may have taken what it belonged to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer import group_records
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.members import LEAVE_GROUP_EPOCH, ConsumerMember
from ottla.coordinator.groups.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.groups.shelf import Shelf
from ottla.coordinator.records import GroupKindRecord
from ottla.env.logging import get_logger
from ottla.protocol.primitives import Message

log = get_logger(__name__)

_NO_TARGET_EPOCH = -1


class ConsumerReplay:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.handlers: dict[str, Callable[[Any, Any], None]] = {
            "ConsumerGroupMetadataKey": self._group,
            "ConsumerGroupPartitionMetadataKey": self._partition_metadata,
            "ConsumerGroupMemberMetadataKey": self._member,
            "ConsumerGroupTargetAssignmentMetadataKey": self._target_epoch,
            "ConsumerGroupTargetAssignmentMemberKey": self._target,
            "ConsumerGroupCurrentMemberAssignmentKey": self._current,
            "ConsumerGroupRegularExpressionKey": self._regex,
        }
        """By the name of the key's class, so that nothing is imported for it."""

    def replay(self, record: GroupKindRecord) -> bool:
        """False: not a record of a consumer group."""
        handler = self.handlers.get(type(record.key).__name__)
        if handler is None:
            return False
        handler(record.key, record.value)
        return True

    def _find(self, key: Any, value: Message | None) -> ConsumerGroup | None:
        """The group; a record that is no tombstone makes it."""
        group = self._shelf.groups.get(key.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if value is None:
            return None
        if isinstance(group, ClassicGroup) and group.members:
            log.error("group.replaced", group=key.group_id, record=type(key).__name__)
        made = self._shelf.groups[key.group_id] = ConsumerGroup(key.group_id)
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

    def _partition_metadata(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is not None:
            group.has_partition_metadata = value is not None

    def _member(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            group.remove(key.member_id)
        else:
            member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
            group.put(group_records.with_metadata(member, value))

    def _target_epoch(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
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
            group.put(group_records.with_assignment(member or ConsumerMember(key.member_id), value))
        elif member is not None:
            gone = LEAVE_GROUP_EPOCH
            group.put(
                replace(member, member_epoch=gone, previous_member_epoch=gone, assigned={}, pending_revocation={})
            )

    def _regex(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.subscriptions.resolve(key.regular_expression, resolved)
