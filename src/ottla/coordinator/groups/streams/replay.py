"""What each record of a streams group does to it. Nothing else changes what is durable in one.

A tombstone for something that is not there does nothing: compaction may have taken what it belonged to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.shelf import Shelf
from ottla.coordinator.groups.streams import group_records
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.members import LEAVE_GROUP_EPOCH, StreamsMember
from ottla.coordinator.groups.streams.tasks import NOTHING_ASSIGNED
from ottla.coordinator.groups.streams.topology import StreamsTopology
from ottla.coordinator.records import GroupKindRecord
from ottla.env.logging import get_logger
from ottla.protocol.primitives import Message

log = get_logger(__name__)

_NO_TARGET_EPOCH = -1


class StreamsReplay:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._handlers: dict[str, Callable[[Any, Any], None]] = {
            "StreamsGroupMetadataKey": self._group,
            "StreamsGroupTopologyKey": self._topology,
            "StreamsGroupMemberMetadataKey": self._member,
            "StreamsGroupTargetAssignmentMetadataKey": self._target_epoch,
            "StreamsGroupTargetAssignmentMemberKey": self._target,
            "StreamsGroupCurrentMemberAssignmentKey": self._current,
        }
        """By the name of the key's class, so that nothing is imported for it."""

    def replay(self, record: GroupKindRecord) -> None:
        self._handlers[type(record.key).__name__](record.key, record.value)

    def _find(self, key: Any, value: Message | None) -> StreamsGroup | None:
        """The group; a record that is no tombstone makes it."""
        group = self._shelf.groups.get(key.group_id)
        if isinstance(group, StreamsGroup):
            return group
        if value is None:
            return None
        if group is not None and not (isinstance(group, ClassicGroup) and group.is_empty):
            log.error("group.replaced", group=key.group_id, record=type(key).__name__)
        made = self._shelf.groups[key.group_id] = StreamsGroup(key.group_id)
        return made

    def _group(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            del self._shelf.groups[key.group_id]
            return
        group.group_epoch = value.epoch
        group.metadata_hash = value.metadata_hash
        group.validated_topology_epoch = value.validated_topology_epoch
        group.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}

    def _topology(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is not None:
            group.topology = None if value is None else StreamsTopology(value)
            group.configured = None

    def _member(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            group.remove(key.member_id)
        else:
            member = group.members.get(key.member_id) or StreamsMember(key.member_id)
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
            group.put(group_records.with_assignment(member or StreamsMember(key.member_id), value))
        elif member is not None:
            gone = LEAVE_GROUP_EPOCH
            group.put(
                replace(
                    member,
                    member_epoch=gone,
                    previous_member_epoch=gone,
                    assigned=NOTHING_ASSIGNED,
                    pending_revocation=NOTHING_ASSIGNED,
                )
            )
