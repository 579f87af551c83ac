"""Heartbeat and LeaveGroup: members that are alive, and members that leave."""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.rebalance import Rebalance
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.heartbeat_response import HeartbeatResponse
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.leave_group_response import LeaveGroupResponse, MemberResponse

log = get_logger(__name__)


class ClassicMembership:
    def __init__(self, context: ShardContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        try:
            code = self._beat(request)
        except KafkaError as error:
            code = error.code
        draft.answer(waiter, HeartbeatResponse(error_code=code))
        return draft.decide()

    def _beat(self, request: HeartbeatRequest) -> ErrorCode:
        group = self._context.classic(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalance.touch(group, member)
        # In CompletingRebalance a beat counts as usual: its sender has the new generation already.
        preparing = group.is_in(GroupState.PREPARING_REBALANCE)
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, request: LeaveGroupRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        group = self._context.classic(request.group_id)
        if group is None:
            unknown = [_answer_for(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in request.members]
            draft.answer(waiter, LeaveGroupResponse(members=unknown))
            return draft.decide()
        responses = [_answer_for(identity, self._leave_one(group, identity, draft)) for identity in request.members]
        if any(response.error_code == ErrorCode.NONE for response in responses):
            self._after_leaving(group, draft)
        draft.answer(waiter, LeaveGroupResponse(members=responses))
        return draft.decide()

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, draft: Draft) -> ErrorCode:
        member_id = identity.member_id
        if member_id in group.pending_join_members:
            self._rebalance.drop(group, member_id)
            return ErrorCode.NONE
        try:
            if member_id == "":
                # An administrator removes a static member by its instance id alone.
                member_id = group.static_members.get(identity.group_instance_id or "", "")
                member = group.validate_member(member_id, None)
            else:
                member = group.validate_member(member_id, identity.group_instance_id)
        except KafkaError as error:
            return error.code
        log.info("member.left", group=group.group_id, member=member_id, reason=identity.reason or "not provided")
        self._rebalance.remove_member(group, member, draft)
        return ErrorCode.NONE

    def _after_leaving(self, group: ClassicGroup, draft: Draft) -> None:
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance.prepare(group, draft, "members left")
        elif group.is_in(GroupState.PREPARING_REBALANCE):
            self._rebalance.complete_if_joined(group, draft)


def _answer_for(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(identity.member_id, identity.group_instance_id, code)
