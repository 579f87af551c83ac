"""The two phases of a rebalance and the timers that end them.

All transitions to PreparingRebalance and CompletingRebalance happen here. A phase ends when every member has come or
when its timer ends. Members that did not come are removed. Static members that miss the join phase keep their place
until their session ends.
"""

from __future__ import annotations

from functools import partial

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.group_records import group_record
from ottla.coordinator.groups.classic.members import EMPTY_ASSIGNMENT, Member
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.groups.shard_context import ShardContext, join_key, session_key, sync_key
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.generated.sync_group_response import SyncGroupResponse

log = get_logger(__name__)

_ABSENT_MEMBERS_LOOK_MS = 1_000
"""The shortest wait for absent static members: their rebalance timeout may be 0."""


class Rebalance:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    # The join phase

    def prepare_or_complete(self, group: ClassicGroup, draft: Draft, reason: str) -> None:
        """A member changed: begin a rebalance, or complete the running rebalance if no member is missing."""
        if group.can_rebalance:
            self.prepare(group, draft, reason)
        else:
            self.complete_if_joined(group, draft)

    def prepare(self, group: ClassicGroup, draft: Draft, reason: str) -> None:
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self._interrupt_sync(group, draft)
        group.pending_sync_members.clear()
        self._context.timers.cancel(sync_key(group.group_id))
        initial = group.is_in(GroupState.EMPTY)
        group.transition_to(GroupState.PREPARING_REBALANCE, self._context.clock.time_ms())
        log.info("group.rebalance_started", group=group.group_id, generation=group.generation_id, reason=reason)
        if initial:
            delay_ms = self._context.settings.group_initial_rebalance_delay_ms
            self._wait_initially(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_all_members_joined:
            self.complete_join(group, draft)
        else:
            self._schedule_join_end(group)

    def complete_if_joined(self, group: ClassicGroup, draft: Draft) -> None:
        """End the join phase when no member is missing; the initial delay always runs to its end."""
        initial = group.previous_state is GroupState.EMPTY
        if group.is_in(GroupState.PREPARING_REBALANCE) and not initial and group.has_all_members_joined:
            self.complete_join(group, draft)

    def complete_join(self, group: ClassicGroup, draft: Draft) -> None:
        """Close the join phase: the next generation begins with the members that have rejoined."""
        self._context.timers.cancel(join_key(group.group_id))
        for member in group.not_yet_rejoined():
            if not member.is_static:
                self.drop(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only absent static members remain: wait until a member rejoins or until their sessions end.
            self._schedule_join_end(group, at_least_ms=_ABSENT_MEMBERS_LOOK_MS)
            return
        group.new_member_added = False
        group.start_generation(self._context.clock.time_ms())
        if group.is_in(GroupState.EMPTY):
            draft.records.append(group_record(group, {}))
            return
        for member in group.members.values():
            self._answer_join(group, member, draft)
        self._context.timers.schedule(
            sync_key(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._expire_sync, group.group_id, group.generation_id),
        )

    def _answer_join(self, group: ClassicGroup, member: Member, draft: Draft) -> None:
        waiter = group.take_join_waiter(member)
        if waiter is not None:
            draft.answer(waiter, joined(group, member))
        self.touch(group, member)
        member.is_new = False
        group.pending_sync_members.add(member.member_id)

    def _schedule_join_end(self, group: ClassicGroup, at_least_ms: int = 0) -> None:
        delay_ms = max(group.rebalance_timeout_ms, at_least_ms)
        self._context.timers.schedule(join_key(group.group_id), delay_ms, partial(self._expire_join, group.group_id))

    def _expire_join(self, group_id: str) -> GroupDecision:
        draft = Draft()
        group = self._context.classic(group_id)
        if group is not None and group.is_in(GroupState.PREPARING_REBALANCE):
            self.complete_join(group, draft)
        return draft.decide()

    def _wait_initially(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """A group that begins gives others time to come, again and again while they do, up to its rebalance timeout."""
        self._context.timers.schedule(
            join_key(group.group_id),
            delay_ms,
            partial(self._end_initial_delay, group.group_id, delay_ms, remaining_ms),
        )

    def _end_initial_delay(self, group_id: str, delay_ms: int, remaining_ms: int) -> GroupDecision:
        draft = Draft()
        group = self._context.classic(group_id)
        if group is None or not group.is_in(GroupState.PREPARING_REBALANCE):
            return draft.decide()
        if group.new_member_added and remaining_ms != 0:
            group.new_member_added = False
            next_delay_ms = min(self._context.settings.group_initial_rebalance_delay_ms, remaining_ms)
            self._wait_initially(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
        else:
            self.complete_join(group, draft)
        return draft.decide()

    # The sync phase

    def _interrupt_sync(self, group: ClassicGroup, draft: Draft) -> None:
        """Parked SyncGroup requests of this generation get no assignment: their members must join again."""
        for member in group.members.values():
            member.assignment = EMPTY_ASSIGNMENT
            self.answer_sync(group, member, draft, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def answer_sync(self, group: ClassicGroup, member: Member, draft: Draft, response: SyncGroupResponse) -> None:
        waiter, member.sync_waiter = member.sync_waiter, None
        if waiter is not None:
            draft.answer(waiter, response)
            # Its session may have ended unnoticed while the request was parked here.
            self.touch(group, member)

    def _expire_sync(self, group_id: str, generation_id: int) -> GroupDecision:
        draft = Draft()
        group = self._context.classic(group_id)
        if group is None or group.generation_id != generation_id or not group.pending_sync_members:
            return draft.decide()
        if group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            for member_id in list(group.pending_sync_members):
                self.drop(group, member_id)
            self.prepare(group, draft, "members did not sync in time")
        return draft.decide()

    # Sessions

    def touch(self, group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
        """The member lives: move the end of its session."""
        self.schedule_session(
            group.group_id, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms
        )

    def touch_committing(self, group: ClassicGroup, member_id: str) -> None:
        """A commit of a member is a sign of life too."""
        member = group.members.get(member_id)
        if member is not None and group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self.touch(group, member)

    def schedule_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        key = session_key(group_id, member_id)
        expire = partial(self._expire_session, group_id, member_id)
        self._context.timers.schedule(key, timeout_ms, expire, lasting=True)

    def drop(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        self._context.timers.cancel(session_key(group.group_id, member_id))

    def remove_member(self, group: ClassicGroup, member: Member, draft: Draft) -> None:
        """Remove a member; a parked request of the member is answered with UNKNOWN_MEMBER_ID."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        waiter = group.take_join_waiter(member)
        if waiter is not None:
            draft.answer(waiter, JoinGroupResponse(member_id="", error_code=unknown))
        if member.sync_waiter is not None:
            draft.answer(member.sync_waiter, SyncGroupResponse(error_code=unknown))
            member.sync_waiter = None
        self.drop(group, member.member_id)

    def _expire_session(self, group_id: str, member_id: str) -> GroupDecision:
        draft = Draft()
        group = self._context.classic(group_id)
        if group is None:
            return draft.decide()
        member = group.members.get(member_id)
        if member is None:
            group.remove(member_id)
        elif member.has_satisfied_heartbeat:
            return draft.decide()
        else:
            log.info("member.expired", group=group_id, member=member_id)
            self.remove_member(group, member, draft)
        self.after_removal(group, draft, "a member's session ended", expired_member=member is not None)
        return draft.decide()

    def after_removal(self, group: ClassicGroup, draft: Draft, reason: str, *, expired_member: bool) -> None:
        """A pending member that goes can only end a join phase; a member that goes also begins a rebalance."""
        if group.is_in(GroupState.PREPARING_REBALANCE):
            if group.has_all_members_joined:
                self.complete_join(group, draft)
        elif expired_member and group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, draft, reason)


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The answer to a successful JoinGroup; only the leader gets the list of members."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=current_members(group) if group.leader_id == member.member_id else [],
    )


def current_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    ]
