"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.group import ClassicGroup
from ottla.coordinator.groups.members import Member
from ottla.coordinator.groups.offset_store import OffsetStore
from ottla.coordinator.groups.shelf import Shelf
from ottla.coordinator.groups.states import GroupState
from ottla.coordinator.records import GroupMetadataRecord, OffsetCommitRecord
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.delete_groups_response import DeletableGroupResult
from ottla.protocol.generated.describe_groups_response import DescribedGroup, DescribedGroupMember
from ottla.protocol.generated.list_groups_response import ListedGroup

log = get_logger(__name__)

CLASSIC_TYPE = "classic"
_NOT_FOUND_ERROR_FROM = 6


class Listing:
    def __init__(self, shelf: Shelf, store: OffsetStore) -> None:
        self._shelf = shelf
        self._store = store

    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """Both filters ignore case; an empty one lets everything pass."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {name.strip().lower() for name in types}
        if wanted_types and CLASSIC_TYPE not in wanted_types:
            return []
        return [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC_TYPE)
            for group in self._shelf.groups.values()
            if not wanted_states or group.state.value.lower() in wanted_states
        ]

    def describe(self, version: int, group_id: str) -> DescribedGroup:
        group = self._shelf.groups.get(group_id)
        if group is None:
            return _not_found(version, group_id)
        stable = group.is_in(GroupState.STABLE)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[_described(group, member) for member in group.members.values()],
        )

    def delete(self, group_id: str, waiter: Waiter) -> GroupDecision:
        """Tombstones for the offsets, then for the group."""
        draft = Draft()
        group = self._shelf.groups.get(group_id)
        if group is None or group.is_in(GroupState.DEAD):
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_in(GroupState.EMPTY):
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            code = ErrorCode.NONE
            draft.records += [
                OffsetCommitRecord(group_id, *target, None) for target in self._store.partitions(group_id)
            ]
            draft.records.append(GroupMetadataRecord(group_id, None))
            log.info("group.deleted", group=group_id, offsets=len(draft.records) - 1)
        draft.answer(waiter, DeletableGroupResult(group_id, code))
        return draft.decide()


def _described(group: ClassicGroup, member: Member) -> DescribedGroupMember:
    stable = group.is_in(GroupState.STABLE)
    return DescribedGroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.metadata(group.protocol_name) if stable else b"",
        member.assignment,
    )


def _not_found(version: int, group_id: str) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= _NOT_FOUND_ERROR_FROM:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found."
    return described
