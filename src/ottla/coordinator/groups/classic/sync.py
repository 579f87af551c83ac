"""SyncGroup: the leader sends the assignment, and every member receives its own part.

The leader's assignment is the only durable part of a generation: the group is Stable once the record is replayed.
"""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.group_records import group_record
from ottla.coordinator.groups.classic.members import EMPTY_ASSIGNMENT, Member
from ottla.coordinator.groups.classic.rebalance import Rebalance
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.groups.group import GroupKind
from ottla.coordinator.groups.shard_context import ShardContext, sync_key
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.sync_group_request import SyncGroupRequest
from ottla.protocol.generated.sync_group_response import SyncGroupResponse


class Sync:
    def __init__(self, context: ShardContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        try:
            group, member = self._validate(request)
        except KafkaError as error:
            draft.answer(waiter, SyncGroupResponse(error_code=error.code))
            return draft.decide()
        if group.is_in(GroupState.PREPARING_REBALANCE):
            draft.answer(waiter, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            return draft.decide()
        self._arrived(group, member)
        if group.is_in(GroupState.STABLE):
            draft.answer(waiter, _assigned(group, member.assignment))
            return draft.decide()
        earlier, member.sync_waiter = member.sync_waiter, waiter
        if earlier is not None:
            draft.answer(earlier, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        if group.leader_id == member.member_id:
            self._assign(group, request, draft)
        return draft.decide()

    def _validate(self, request: SyncGroupRequest) -> tuple[ClassicGroup, Member]:
        group = self._context.classic(request.group_id)
        if group is None or group.is_in(GroupState.EMPTY):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.is_in(GroupState.DEAD):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return group, member

    def _arrived(self, group: ClassicGroup, member: Member) -> None:
        group.pending_sync_members.discard(member.member_id)
        if not group.pending_sync_members:
            self._context.timers.cancel(sync_key(group.group_id))

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, draft: Draft) -> None:
        """Members that the leader left out get an empty assignment."""
        leader_assignments = {item.member_id: bytes(item.assignment) for item in request.assignments}
        assignments = {member_id: leader_assignments.get(member_id, EMPTY_ASSIGNMENT) for member_id in group.members}
        draft.records.append(group_record(group, assignments))
        self._context.rebalances[GroupKind.CLASSIC] += 1
        for member in group.members.values():
            self._rebalance.answer_sync(group, member, draft, _assigned(group, assignments[member.member_id]))


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def _differ(of_request: str | None, of_group: str | None) -> bool:
    return of_request is not None and of_group is not None and of_request != of_group
