"""ConsumerGroupHeartbeat: join, stay, follow the assignment and leave, all in one request (KIP-848).

Epoch 0 joins, -1 leaves, -2 leaves for a while (a static member keeps its place). A member whose epoch differs from the
coordinator's must give up all its partitions and join again. The exception is a member that only missed the last
answer.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH, LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer.fencing import ConsumerFencing
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.group_records import current_record
from ottla.coordinator.groups.consumer.members import AssignedPartitions, ConsumerMember
from ottla.coordinator.groups.consumer.migration import Migration
from ottla.coordinator.groups.consumer.rebalance import ConsumerRebalance
from ottla.coordinator.groups.consumer.reconciliation import OwnedPartitions
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.protocol.generated.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

log = get_logger(__name__)


class ConsumerHeartbeat:
    def __init__(
        self, context: ShardContext, rebalance: ConsumerRebalance, fencing: ConsumerFencing, migration: Migration
    ) -> None:
        self._context = context
        self._rebalance = rebalance
        self._fencing = fencing
        self._migration = migration

    def heartbeat(self, caller: Caller, request: ConsumerGroupHeartbeatRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        if request.member_epoch in (LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH):
            response = self._leave(request, draft)
        else:
            response = self._beat(caller, request, draft)
        draft.answer(waiter, response)
        return draft.decide()

    def _beat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, draft: Draft
    ) -> ConsumerGroupHeartbeatResponse:
        group, classic = self._find_or_make(request, draft)
        if len(group.members) >= self._context.settings.group_consumer_max_size:
            self._refuse_if_new(group, request.member_id)
        if not request.member_id:
            # Only in version 0: later clients make their own member id.
            request = copy(request)
            request.member_id = self._context.new_uuid_text()
        owned = _owned(request)
        member = self._member(group, request, owned, draft)
        updated = _updated(member, caller, request)
        epoch, changed = self._rebalance.subscribe(caller, group, member, updated, draft)
        target = self._rebalance.assign(group, epoch, member, updated, draft)
        updated = self._rebalance.reconcile(group, updated, target, owned, draft, subscription_changed=changed)
        # From here on nothing can fail.
        if classic is not None:
            self._migration.release(classic, draft)
            for migrated in group.members.values():
                if migrated.classic is not None:
                    self._rebalance.touch(group.group_id, migrated.member_id, migrated.classic.session_timeout_ms)
        self._rebalance.touch(group.group_id, updated.member_id)
        interval_ms = self._context.consumer_timings(group.group_id).consumer_heartbeat_interval_ms
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id, member_epoch=updated.member_epoch, heartbeat_interval_ms=interval_ms
        )
        if request.member_epoch == JOIN_GROUP_EPOCH or _is_full(request) or member.assigned != updated.assigned:
            response.assignment = _assignment(updated.assigned)
        return response

    def _find_or_make(
        self, request: ConsumerGroupHeartbeatRequest, draft: Draft
    ) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """The group, and the classic group when this heartbeat upgrades the group."""
        group_id, joins = request.group_id, request.member_epoch == JOIN_GROUP_EPOCH
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, None
        if group is None and not joins:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if group is None:
            return ConsumerGroup(group_id), None
        if not isinstance(group, ClassicGroup) or not joins:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if group.is_empty:
            draft.records += group.tombstones()
            return ConsumerGroup(group_id), None
        upgraded = self._migration.upgraded(group)
        draft.records += self._migration.upgrade_records(group, upgraded)
        log.info("group.upgraded", group=group_id, members=len(upgraded.members))
        return upgraded, group

    def _refuse_if_new(self, group: ConsumerGroup, member_id: str) -> None:
        if member_id not in group.members:
            limit = self._context.settings.group_consumer_max_size
            message = f"The consumer group has reached its maximum capacity of {limit} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def _member(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        owned: OwnedPartitions | None,
        draft: Draft,
    ) -> ConsumerMember:
        joins = request.member_epoch == JOIN_GROUP_EPOCH
        if request.instance_id is not None:
            return self._static_member(group, request, request.instance_id, owned, draft)
        member = group.members.get(request.member_id)
        if member is None and joins:
            return ConsumerMember(request.member_id)
        member = group.member(request.member_id)
        _validate_epoch(member, request.member_epoch, owned)
        return member

    def _static_member(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        instance_id: str,
        owned: OwnedPartitions | None,
        draft: Draft,
    ) -> ConsumerMember:
        existing = group.static_member(instance_id)
        if request.member_epoch != JOIN_GROUP_EPOCH:
            member = validate_static(existing, request.member_id, instance_id)
            _validate_epoch(member, request.member_epoch, owned)
            return member
        if existing is None:
            return group.members.get(request.member_id) or ConsumerMember(request.member_id)
        if not existing.uses_classic_protocol and existing.member_epoch != LEAVE_GROUP_STATIC_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {existing.member_id} member.",
            )
        return self._replace(group, existing, request.member_id, draft)

    def _replace(self, group: ConsumerGroup, existing: ConsumerMember, member_id: str, draft: Draft) -> ConsumerMember:
        new = replace(existing, member_id=member_id, member_epoch=JOIN_GROUP_EPOCH, previous_member_epoch=0)
        self._rebalance.replace_static(group, existing, new, draft)
        self._fencing.cancel_timers(group.group_id, existing.member_id)
        return new

    # Leave

    def _leave(self, request: ConsumerGroupHeartbeatRequest, draft: Draft) -> ConsumerGroupHeartbeatResponse:
        group = self._context.group(request.group_id)
        if not isinstance(group, ConsumerGroup):
            message = f"Group {request.group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            existing = group.static_member(request.instance_id)
            member = validate_static(existing, request.member_id, request.instance_id)
        log.info("member.left", group=group.group_id, member=member.member_id, epoch=request.member_epoch)
        if request.instance_id is not None and request.member_epoch == LEAVE_GROUP_STATIC_EPOCH:
            draft.records.append(current_record(group.group_id, _absent(member)))
        else:
            self._fencing.fence(group, [member], draft)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def validate_static(existing: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}.",
        )
    return existing


def _absent(member: ConsumerMember) -> ConsumerMember:
    """The static member while it is away: the member keeps its partitions, at an epoch below every other epoch."""
    assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
    return replace(member, member_epoch=LEAVE_GROUP_STATIC_EPOCH, assigned=assigned, pending_revocation={})


def _validate_epoch(member: ConsumerMember, epoch: int, owned: OwnedPartitions | None) -> None:
    if epoch in (JOIN_GROUP_EPOCH, member.member_epoch):
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and _has_all(member.assigned, owned):
        return  # the member missed the last answer
    compared = "greater" if epoch > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _has_all(assigned: AssignedPartitions, owned: OwnedPartitions | None) -> bool:
    return owned is not None and all(
        topic_id in assigned and owned[topic_id] <= assigned[topic_id].keys() for topic_id in owned
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions}


def _updated(member: ConsumerMember, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member with the changed fields of the request; the same object when nothing changed, as in most
    heartbeats."""
    changes: dict[str, object] = {}
    if request.instance_id is not None and request.instance_id != member.instance_id:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None and request.rack_id != member.rack_id:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms not in (-1, member.rebalance_timeout_ms):
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None and request.server_assignor != member.server_assignor:
        changes["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        changes["subscribed_topic_regex"] = request.subscribed_topic_regex
    if caller.client_id != member.client_id:
        changes["client_id"] = caller.client_id
    if caller.client_host != member.client_host:
        changes["client_host"] = caller.client_host
    if member.classic is not None:
        changes["classic"] = None
    return replace(member, **changes) if changes else member  # type: ignore[arg-type]  # each value has its field's type


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A client sends its full state after it has lost its session or an answer: the response has the whole
    assignment."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _assignment(assigned: AssignedPartitions) -> Assignment:
    return Assignment([TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assigned.items()])
