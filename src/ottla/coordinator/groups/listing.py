"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter, answered
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.members import Member
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.groups.offset_store import OffsetStore
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.records import OffsetCommitRecord
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.delete_groups_response import DeletableGroupResult
from ottla.protocol.generated.describe_groups_response import DescribedGroup, DescribedGroupMember
from ottla.protocol.generated.list_groups_response import ListedGroup

log = get_logger(__name__)

_NOT_FOUND_ERROR_FROM = 6


class GroupListing:
    def __init__(self, context: ShardContext, store: OffsetStore) -> None:
        self._context = context
        self._store = store

    def list_groups(self, states: frozenset[str], types: frozenset[str], waiter: Waiter) -> GroupDecision:
        """Both filters are in lower case; an empty filter accepts every group."""
        groups = [
            ListedGroup(group.group_id, group.protocol_type or "", group.state_name, group.kind.value)
            for group in self._context.groups.values()
            if (not types or group.kind.value in types) and (not states or group.state_name.lower() in states)
        ]
        return answered(waiter, groups)

    def describe(self, version: int, group_id: str, waiter: Waiter) -> GroupDecision:
        return answered(waiter, self._described(version, group_id))

    def _described(self, version: int, group_id: str) -> DescribedGroup:
        group = self._context.groups.get(group_id)
        if group is None:
            return _not_found(version, group_id, f"Group {group_id} not found.")
        if not isinstance(group, ClassicGroup):
            return _not_found(version, group_id, f"Group {group_id} is not a classic group.")
        stable = group.is_in(GroupState.STABLE)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[_described_member(group, member) for member in group.members.values()],
        )

    def delete(self, group_id: str, waiter: Waiter) -> GroupDecision:
        """Tombstones for the offsets, then for the group."""
        draft = Draft()
        code = ErrorCode.NONE
        try:
            group = self._context.group(group_id)
            group.validate_delete()
        except KafkaError as error:
            code = error.code
        else:
            offsets = [OffsetCommitRecord(group_id, *target, None) for target in self._store.partitions(group_id)]
            draft.records += offsets
            draft.records += group.tombstones()
            log.info("group.deleted", group=group_id, kind=group.kind.value, offsets=len(offsets))
        draft.answer(waiter, DeletableGroupResult(group_id, code))
        return draft.decide()


def _described_member(group: ClassicGroup, member: Member) -> DescribedGroupMember:
    stable = group.is_in(GroupState.STABLE)
    return DescribedGroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.metadata(group.protocol_name) if stable else b"",
        member.assignment,
    )


def _not_found(version: int, group_id: str, message: str) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= _NOT_FOUND_ERROR_FROM:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = message
    return described
