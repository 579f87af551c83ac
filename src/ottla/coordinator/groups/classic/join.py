"""JoinGroup: which client may enter, under which member id, and whether the join begins a rebalance.

The group exists when a request comes here (`GroupMachine.create_group` is an event of its own). The exception is a
member id that an earlier group gave out. A dynamic member of JoinGroup v4 or later first gets an id and must join again
with that id (KIP-394). A static member without an id replaces the member with the same instance id and fences the old
member id. When the group does not change by that, there is no rebalance (KIP-345, KIP-814).
"""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.group_records import group_record
from ottla.coordinator.groups.classic.members import Member, Protocols
from ottla.coordinator.groups.classic.rebalance import Rebalance, joined
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.groups.group import GroupKind
from ottla.coordinator.groups.shard_context import ShardContext, session_key
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.join_group_request import JoinGroupRequest
from ottla.protocol.generated.join_group_response import JoinGroupResponse
from ottla.protocol.generated.sync_group_response import SyncGroupResponse

UNKNOWN_MEMBER_ID = ""
_KNOWN_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9


class Join:
    def __init__(self, context: ShardContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance

    def join(self, caller: Caller, request: JoinGroupRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        group = self._context.classic(request.group_id)
        if group is None and self._has_another_kind(request.group_id):
            draft.answer(waiter, _refused(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group is None:
            draft.answer(waiter, _refused(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        elif not self._accepts(group, request.member_id):
            self._rebalance.drop(group, request.member_id)
            draft.answer(waiter, _refused(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports_protocols(request.protocol_type, _protocols(request)):
            draft.answer(waiter, _refused(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif request.member_id != UNKNOWN_MEMBER_ID:
            self._join_known(group, caller, request, waiter, draft)
        elif request.group_instance_id is not None:
            self._join_new_static(group, caller, request, waiter, draft)
        else:
            self._join_new_dynamic(group, caller, request, waiter, draft)
        return draft.decide()

    def _has_another_kind(self, group_id: str) -> bool:
        """A group whose members do not use the classic protocol; an empty streams group may be replaced."""
        group = self._context.groups.get(group_id)
        kind = None if group is None else group.kind
        return kind is GroupKind.SHARE or (group is not None and kind is GroupKind.STREAMS and not group.is_empty)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group accepts this member: new members only up to group.max.size.

        While a rebalance is prepared, only members that have rejoined count. A group above a lowered limit then loses
        the last members to rejoin, not all members.
        """
        limit = self._context.settings.group_max_size
        member = group.members.get(member_id)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return (member is not None and member.is_awaiting_join) or group.awaiting_join_count < limit
        if group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(group.members) < limit
        return True

    def _join_new_dynamic(
        self, group: ClassicGroup, caller: Caller, request: JoinGroupRequest, waiter: Waiter, draft: Draft
    ) -> None:
        member_id = self._context.new_member_id(caller.client_id)
        if caller.version < _KNOWN_MEMBER_ID_REQUIRED_FROM:
            self._add(group, caller, request, member_id, waiter, draft)
        elif len(group.pending_join_members) >= self._context.settings.max_pending_members:
            draft.answer(waiter, _refused(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED))
        else:
            group.pending_join_members.add(member_id)
            self._rebalance.schedule_session(group.group_id, member_id, request.session_timeout_ms)
            draft.answer(waiter, _refused(member_id, ErrorCode.MEMBER_ID_REQUIRED))

    def _join_new_static(
        self, group: ClassicGroup, caller: Caller, request: JoinGroupRequest, waiter: Waiter, draft: Draft
    ) -> None:
        instance_id = request.group_instance_id or ""
        member_id = self._context.new_member_id(instance_id)
        if instance_id in group.static_members:
            self._replace_static(group, caller, request, instance_id, member_id, waiter, draft)
        else:
            self._add(group, caller, request, member_id, waiter, draft)

    def _join_known(
        self, group: ClassicGroup, caller: Caller, request: JoinGroupRequest, waiter: Waiter, draft: Draft
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_join_members and request.group_instance_id is None:
            self._add(group, caller, request, member_id, waiter, draft)
            return
        try:
            member = group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            draft.answer(waiter, _refused(member_id, error.code, protocol_name=None))
            return
        if group.is_in(GroupState.EMPTY, GroupState.DEAD):
            draft.answer(waiter, _refused(member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        elif self._must_rebalance(group, member, request):
            self._update(group, member, request, waiter, draft)
        else:
            draft.answer(waiter, joined(group, member))

    @staticmethod
    def _must_rebalance(group: ClassicGroup, member: Member, request: JoinGroupRequest) -> bool:
        """Whether the join begins a rebalance; False for a member that only missed its answer.

        The leader of a stable group may always ask for a new assignment: the leader sees changes that the coordinator
        does not see (a topic that grew).
        """
        if group.is_in(GroupState.PREPARING_REBALANCE) or member.protocols != _protocols(request):
            return True
        return group.is_in(GroupState.STABLE) and group.leader_id == member.member_id

    def _add(
        self,
        group: ClassicGroup,
        caller: Caller,
        request: JoinGroupRequest,
        member_id: str,
        waiter: Waiter,
        draft: Draft,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            _protocols(request),
            is_new=True,
        )
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, waiter)
        # The new member has no id yet and cannot send heartbeats: without this timeout a dead client would stay
        # unnoticed.
        self._rebalance.touch(group, member, self._context.settings.new_member_join_timeout_ms)
        self._rebalance.prepare_or_complete(group, draft, f"{member_id} joined: {_reason(request)}")

    def _update(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, waiter: Waiter, draft: Draft
    ) -> None:
        group.update(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms)
        self._park(group, member, waiter, draft)
        self._rebalance.prepare_or_complete(group, draft, f"{member.member_id} rejoined: {_reason(request)}")

    def _replace_static(
        self,
        group: ClassicGroup,
        caller: Caller,
        request: JoinGroupRequest,
        instance_id: str,
        member_id: str,
        waiter: Waiter,
        draft: Draft,
    ) -> None:
        old = group.members[group.static_members[instance_id]]
        self._fence(group, old, draft)
        self._context.timers.cancel(session_key(group.group_id, old.member_id))
        former_leader = group.leader_id
        member = group.rename_static(instance_id, member_id)
        group.update(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms)
        self._rebalance.touch(group, member)
        if group.is_in(GroupState.STABLE) and group.select_protocol() == group.protocol_name:
            draft.records.append(group_record(group, {m.member_id: m.assignment for m in group.members.values()}))
            draft.answer(waiter, _rejoined_static(group, member, former_leader, caller.version))
            return
        self._park(group, member, waiter, draft)
        # In CompletingRebalance the leader may already assign to the old id, so that a new rebalance is due there too.
        self._rebalance.prepare_or_complete(group, draft, f"static member {instance_id} returned: {_reason(request)}")

    @staticmethod
    def _fence(group: ClassicGroup, old: Member, draft: Draft) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        join_waiter = group.take_join_waiter(old)
        if join_waiter is not None:
            draft.answer(join_waiter, _refused(old.member_id, fenced, protocol_name=None))
        if old.sync_waiter is not None:
            draft.answer(old.sync_waiter, SyncGroupResponse(error_code=fenced))
            old.sync_waiter = None

    @staticmethod
    def _park(group: ClassicGroup, member: Member, waiter: Waiter, draft: Draft) -> None:
        earlier = group.park_join(member, waiter)
        if earlier is not None:
            # The same member asks again. A member has one parked request: the older request is answered with a
            # retriable error.
            draft.answer(earlier, _refused(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))


def _rejoined_static(group: ClassicGroup, member: Member, former_leader: str | None, version: int) -> JoinGroupResponse:
    """Before v9 a returning leader gets its old member id as the leader's id.

    With its new id the client would assign again, and the other members would not get that assignment.
    """
    if version >= _SKIP_ASSIGNMENT_FROM:
        return joined(group, member, skip_assignment=group.leader_id == member.member_id)
    response = joined(group, member)
    response.members = []
    response.leader = former_leader or ""
    return response


def _refused(member_id: str, code: ErrorCode, *, protocol_name: str | None = "") -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=code, protocol_name=protocol_name)


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def _reason(request: JoinGroupRequest) -> str:
    return request.reason or "not provided"
