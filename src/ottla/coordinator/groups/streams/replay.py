"""Replays the records that only streams groups have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.coordinator.groups.assigned_group import LEAVE_GROUP_EPOCH
from ottla.coordinator.groups.assigned_replay import AssignedReplay, Handler
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.streams import group_records
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.members import StreamsMember
from ottla.coordinator.groups.streams.tasks import NOTHING_ASSIGNED
from ottla.coordinator.groups.streams.topology import StreamsTopology


class StreamsReplay(AssignedReplay[StreamsGroup]):
    prefix = "StreamsGroup"
    records = group_records
    member_class = StreamsMember
    group_class = StreamsGroup

    def _more_handlers(self) -> dict[str, Handler]:
        return {"Topology": self._topology}

    def _wrongs(self, group: Group) -> bool:
        return not (isinstance(group, ClassicGroup) and group.is_empty)

    def _without_assignment(self, member: StreamsMember) -> StreamsMember:
        return replace(
            member,
            member_epoch=LEAVE_GROUP_EPOCH,
            previous_member_epoch=LEAVE_GROUP_EPOCH,
            assigned=NOTHING_ASSIGNED,
            pending_revocation=NOTHING_ASSIGNED,
        )

    def _take_metadata(self, group: StreamsGroup, value: Any) -> None:
        group.validated_topology_epoch = value.validated_topology_epoch
        group.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}

    def _topology(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is not None:
            group.topology = None if value is None else StreamsTopology(value)
            group.configured = None
