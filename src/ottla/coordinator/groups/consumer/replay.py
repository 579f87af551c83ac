"""Replays the records that only consumer groups have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.coordinator.groups.assigned_group import LEAVE_GROUP_EPOCH
from ottla.coordinator.groups.assigned_replay import AssignedReplay, Handler
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer import group_records
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.members import ConsumerMember
from ottla.coordinator.groups.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.groups.group import Group


class ConsumerReplay(AssignedReplay[ConsumerGroup]):
    prefix = "ConsumerGroup"
    records = group_records
    member_class = ConsumerMember
    group_class = ConsumerGroup

    def _more_handlers(self) -> dict[str, Handler]:
        return {"PartitionMetadata": self._partition_metadata, "RegularExpression": self._regex}

    def _wrongs(self, group: Group) -> bool:
        return isinstance(group, ClassicGroup) and bool(group.members)

    def _without_assignment(self, member: ConsumerMember) -> ConsumerMember:
        epoch = LEAVE_GROUP_EPOCH
        return replace(member, member_epoch=epoch, previous_member_epoch=epoch, assigned={}, pending_revocation={})

    def _partition_metadata(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is not None:
            group.has_partition_metadata = value is not None

    def _regex(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.subscriptions.resolve(key.regular_expression, resolved)
