"""ShareGroupHeartbeat: join, stay, follow the assignment and leave, all in one request (KIP-932).

Epoch 0 joins, -1 leaves. A new assignment counts at once: no member has to release a partition before other members get it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH, LEAVE_GROUP_EPOCH
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.group import GroupKind
from ottla.coordinator.groups.shard_context import ShardContext, session_key
from ottla.coordinator.groups.share.assignor import assign
from ottla.coordinator.groups.share.group import ShareGroup
from ottla.coordinator.groups.share.group_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from ottla.coordinator.groups.share.initialization import (
    UNKNOWN_START_OFFSET,
    StateRequest,
    initializing_record,
    is_assignment_due,
    missing,
)
from ottla.coordinator.groups.share.members import Partitions, ShareMember
from ottla.coordinator.groups.share.timings import share_timings
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.java_order import strings_in_java_order
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.protocol.generated.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

log = get_logger(__name__)


class Beat(NamedTuple):
    """The response, and the following request to the share coordinator."""

    response: ShareGroupHeartbeatResponse
    state_request: StateRequest | None = None


class ShareHeartbeat:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def heartbeat(self, caller: Caller, request: ShareGroupHeartbeatRequest, waiter: Waiter) -> GroupDecision:
        """Answered with a `Beat`."""
        draft = Draft()
        beat = (
            self._leave(request, draft)
            if request.member_epoch == LEAVE_GROUP_EPOCH
            else self._beat(caller, request, draft)
        )
        draft.answer(waiter, beat)
        return draft.decide()

    def _beat(self, caller: Caller, request: ShareGroupHeartbeatRequest, draft: Draft) -> Beat:
        joins = request.member_epoch == JOIN_GROUP_EPOCH
        group = self._find_or_make(request.group_id, joins=joins)
        self._refuse_if_full(group, request.member_id)
        existing = group.members.get(request.member_id)
        member = existing or (ShareMember(request.member_id) if joins else group.member(request.member_id))
        _validate_epoch(member, request.member_epoch)
        updated = _updated(member, caller, request)
        if updated != member:
            draft.records.append(member_record(group.group_id, updated))
        bump = updated.subscribed_topic_names != member.subscribed_topic_names
        epoch, bump = self._update_epoch(group, member, updated, draft, bump=bump)
        target_epoch, target = self._assign(group, epoch, updated, draft)
        reconciled = self._reconcile(group, updated, target_epoch, target, draft, bumped=bump)
        self.touch(group.group_id, updated.member_id)
        timings = share_timings(group.group_id, self._context.image, self._context.settings)
        response = ShareGroupHeartbeatResponse(
            member_id=reconciled.member_id,
            member_epoch=reconciled.member_epoch,
            heartbeat_interval_ms=timings.heartbeat_interval_ms,
        )
        if joins or request.subscribed_topic_names is not None or reconciled.assigned != member.assigned:
            response.assignment = _assignment(reconciled.assigned)
        return Beat(response, self._state_request(group, epoch, member, updated, draft))

    def _find_or_make(self, group_id: str, *, joins: bool) -> ShareGroup:
        group = self._context.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is None and joins:
            return ShareGroup(group_id)
        message = f"Share group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def _refuse_if_full(self, group: ShareGroup, member_id: str) -> None:
        limit = self._context.settings.group_share_max_size
        if len(group.members) >= limit and member_id not in group.members:
            message = f"The share group has reached its maximum capacity of {limit} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    # Epoch, target, assignment

    def _update_epoch(
        self, group: ShareGroup, old: ShareMember, new: ShareMember, draft: Draft, *, bump: bool
    ) -> tuple[int, bool]:
        if not bump and group.assignment_epoch >= group.group_epoch:
            bump = is_assignment_due(group)
        epoch = group.group_epoch
        if bump or group.refresh_due:
            topics = group.topics_with(old, new)
            metadata_hash = self._context.topic_hashes.group_hash(topics, self._context.image)
            if bump or metadata_hash != group.metadata_hash:
                bump = True
                epoch += 1
                draft.records.append(epoch_record(group.group_id, epoch, metadata_hash))
                log.info("group.epoch_bumped", group=group.group_id, epoch=epoch)
                self._context.rebalances[GroupKind.SHARE] += 1
            elif not draft.records:
                group.refreshed()
        return epoch, bump

    def _assign(self, group: ShareGroup, epoch: int, updated: ShareMember, draft: Draft) -> tuple[int, Partitions]:
        last = group.assignment_epoch, group.targets.get(updated.member_id, {})
        if group.assignment_epoch >= epoch or not self._is_due(group):
            return last
        members = {**group.members, updated.member_id: updated}
        topics = self._context.image.topics_by_name
        subscriptions = {
            member_id: frozenset(
                topics[name].id for name in members[member_id].subscribed_topic_names if name in topics
            )
            for member_id in strings_in_java_order(members)
        }
        readable = {topic_id: shared.partitions for topic_id, shared in group.initialized.items()}
        assignment = assign(subscriptions, readable, group.targets)
        for member_id, partitions in assignment.items():
            if group.targets.get(member_id) != partitions:
                draft.records.append(target_record(group.group_id, member_id, partitions))
        draft.records.append(target_epoch_record(group.group_id, epoch, self._context.clock.time_ms()))
        log.info("group.assigned", group=group.group_id, epoch=epoch, assignor="simple", members=len(members))
        return epoch, assignment.get(updated.member_id, {})

    def _is_due(self, group: ShareGroup) -> bool:
        timings = share_timings(group.group_id, self._context.image, self._context.settings)
        if group.assignment_timestamp_ms == 0 or timings.assignment_interval_ms == 0:
            return True
        return self._context.has_passed(group.assignment_timestamp_ms, timings.assignment_interval_ms)

    def _reconcile(
        self, group: ShareGroup, member: ShareMember, epoch: int, target: Partitions, draft: Draft, *, bumped: bool
    ) -> ShareMember:
        if epoch == member.member_epoch and not bumped:
            return member
        topics = self._context.image.topics_by_id
        subscribed: dict[Uuid, frozenset[int]] = {
            topic_id: partitions
            for topic_id, partitions in target.items()
            if topic_id in topics and topics[topic_id].name in member.subscribed_topic_names
        }
        moved = replace(member, assigned=subscribed)
        if epoch != member.member_epoch:
            moved = replace(moved, member_epoch=epoch, previous_member_epoch=member.member_epoch)
        if moved != member:
            draft.records.append(current_record(group.group_id, moved))
        return moved

    def _state_request(
        self, group: ShareGroup, epoch: int, old: ShareMember, new: ShareMember, draft: Draft
    ) -> StateRequest | None:
        topics = missing(group, group.topics_with(old, new), self._context)
        if not topics:
            return None
        draft.records.append(initializing_record(group, topics, self._context.image))
        offsets = {
            topic_id: dict.fromkeys(shared.partitions, UNKNOWN_START_OFFSET) for topic_id, shared in topics.items()
        }
        return StateRequest(group.group_id, epoch, offsets)

    # Leaving

    def _leave(self, request: ShareGroupHeartbeatRequest, draft: Draft) -> Beat:
        group = self._context.group(request.group_id)
        if not isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
        member = group.member(request.member_id)
        log.info("member.left", group=group.group_id, member=member.member_id)
        self._remove(group, member, draft)
        return Beat(ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch))

    def _remove(self, group: ShareGroup, member: ShareMember, draft: Draft) -> None:
        draft.records += member_tombstones(group.group_id, member.member_id)
        topics = group.topics_with(member, None)
        metadata_hash = self._context.topic_hashes.group_hash(topics, self._context.image)
        draft.records.append(epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
        self._context.timers.cancel(session_key(group.group_id, member.member_id))

    def touch(self, group_id: str, member_id: str) -> None:
        """The member lives: move the end of its session."""
        timeout_ms = share_timings(group_id, self._context.image, self._context.settings).session_timeout_ms
        self._context.timers.schedule(
            session_key(group_id, member_id), timeout_ms, partial(self._end, group_id, member_id)
        )

    def _end(self, group_id: str, member_id: str) -> GroupDecision:
        draft = Draft()
        group = self._context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        if isinstance(group, ShareGroup) and member is not None:
            log.info("member.fenced", group=group_id, member=member_id, reason="its session ended")
            self._remove(group, member, draft)
        return draft.decide()


def _validate_epoch(member: ShareMember, epoch: int) -> None:
    if epoch in (JOIN_GROUP_EPOCH, member.member_epoch):
        return
    if epoch > member.member_epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
        )
    if epoch != member.previous_member_epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.member_epoch}), and it does not match the previous member epoch "
            f"({member.previous_member_epoch}). The member must abandon all its partitions and rejoin.",
        )


def _updated(member: ShareMember, caller: Caller, request: ShareGroupHeartbeatRequest) -> ShareMember:
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
    )


def _assignment(assigned: Partitions) -> Assignment:
    return Assignment([TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assigned.items()])


def validate_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """The checks of a ShareGroupHeartbeat that need no group."""
    for value, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOIN_GROUP_EPOCH:
        if not request.subscribed_topic_names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_GROUP_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
