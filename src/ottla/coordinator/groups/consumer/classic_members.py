"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members that live in a consumer group.

Classic members see a generation where other members see a member epoch. The coordinator assigns, so that a join is
answered at once and no member leads. A member that must move on gets REBALANCE_IN_PROGRESS for its heartbeat. The
member then has its rebalance timeout to join again and to sync.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.join import UNKNOWN_MEMBER_ID
from ottla.coordinator.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.groups.consumer import embedded
from ottla.coordinator.groups.consumer.fencing import ConsumerFencing
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.heartbeat import validate_static
from ottla.coordinator.groups.consumer.members import ClassicMember, ConsumerMember, ConsumerMemberState
from ottla.coordinator.groups.consumer.migration import Migration
from ottla.coordinator.groups.consumer.rebalance import ConsumerRebalance
from ottla.coordinator.groups.consumer.target import ConsumerTarget
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.heartbeat_response import HeartbeatResponse
from ottla.protocol.generated.join_group_request import JoinGroupRequest
from ottla.protocol.generated.join_group_response import JoinGroupResponse
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.leave_group_response import LeaveGroupResponse, MemberResponse
from ottla.protocol.generated.sync_group_request import SyncGroupRequest
from ottla.protocol.generated.sync_group_response import SyncGroupResponse
from ottla.protocol.primitives import DecodeError

_KNOWN_MEMBER_ID_REQUIRED_FROM = 4


class ClassicMembers:
    def __init__(
        self, context: ShardContext, rebalance: ConsumerRebalance, fencing: ConsumerFencing, migration: Migration
    ) -> None:
        self._context = context
        self._rebalance = rebalance
        self._fencing = fencing
        self._migration = migration

    # Join

    def join(self, group: ConsumerGroup, caller: Caller, request: JoinGroupRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        given_id = request.member_id
        try:
            self._validate_join(group, request)
            if not given_id:
                request = copy(request)
                request.member_id = self._context.new_uuid_text()
            if self._must_return_with_id(caller, request, given_id):
                code = ErrorCode.MEMBER_ID_REQUIRED
                draft.answer(waiter, JoinGroupResponse(member_id=request.member_id, error_code=code))
                return draft.decide()
            response = self._join(group, caller, request, draft, is_unknown=not given_id)
        except KafkaError as error:
            refusal = Draft()
            refusal.answer(waiter, JoinGroupResponse(member_id=given_id, error_code=error.code))
            return refusal.decide()
        draft.answer(waiter, response)
        return draft.decide()

    def _validate_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        settings = self._context.settings
        if not settings.allows_migration:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if len(group.members) >= settings.group_consumer_max_size and request.member_id not in group.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    @staticmethod
    def _must_return_with_id(caller: Caller, request: JoinGroupRequest, given_id: str) -> bool:
        dynamic = request.group_instance_id is None
        return dynamic and given_id == UNKNOWN_MEMBER_ID and caller.version >= _KNOWN_MEMBER_ID_REQUIRED_FROM

    def _join(
        self, group: ConsumerGroup, caller: Caller, request: JoinGroupRequest, draft: Draft, *, is_unknown: bool
    ) -> JoinGroupResponse:
        subscription = _read_subscription(request)
        existing = group.static_member(request.group_instance_id)
        downgrade = existing is not None and self._migration.must_downgrade_replacing(group, existing)
        member = self._member(group, request, draft, is_unknown=is_unknown)
        updated = _updated(member, caller, request, subscription)
        epoch, changed = self._rebalance.subscribe(caller, group, member, updated, draft)
        owned = embedded.owned_partitions(subscription, self._context.image)
        if downgrade:
            stale = group.assignment_epoch < epoch
            if not stale:
                target = ConsumerTarget(group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id))
                updated = self._rebalance.reconcile(group, updated, target, owned, draft, subscription_changed=changed)
            self._migration.downgrade(group, draft, joining=updated, rebalance=stale)
        else:
            target = self._rebalance.assign(group, epoch, member, updated, draft)
            updated = self._rebalance.reconcile(group, updated, target, owned, draft, subscription_changed=changed)
            self._rebalance.touch(group.group_id, updated.member_id, request.session_timeout_ms)
            reason = "it did not sync in time"
            self._schedule("resync", group.group_id, updated.member_id, request.rebalance_timeout_ms, reason)
        self._context.timers.cancel(("rejoin", group.group_id, updated.member_id))
        return JoinGroupResponse(
            member_id=updated.member_id,
            generation_id=updated.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
        )

    def _member(
        self, group: ConsumerGroup, request: JoinGroupRequest, draft: Draft, *, is_unknown: bool
    ) -> ConsumerMember:
        member_id, instance_id = request.member_id, request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        existing = group.static_member(instance_id)
        if not is_unknown:
            return validate_static(existing, member_id, instance_id)
        if existing is None:
            return ConsumerMember(member_id)
        new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self._rebalance.replace_static(group, existing, new, draft)
        self._fencing.cancel_timers(group.group_id, existing.member_id)
        return new

    # Sync and heartbeat

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        try:
            member, classic = self._validate(group, request.member_id, request.group_instance_id, request.generation_id)
            _validate_protocol(classic, request)
            if (
                group.assignment_epoch > member.member_epoch
                and member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS
            ):
                self._await_rejoin(group, member)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            draft.answer(waiter, SyncGroupResponse(error_code=error.code))
            return draft.decide()
        self._context.timers.cancel(("resync", group.group_id, member.member_id))
        self._rebalance.touch(group.group_id, member.member_id, classic.session_timeout_ms)
        partitions = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
        version = embedded.read_version(classic.protocols[0][1])
        assignment = embedded.write_assignment(partitions, version, self._context.image)
        draft.answer(
            waiter,
            SyncGroupResponse(
                protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
            ),
        )
        return draft.decide()

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        code = ErrorCode.NONE
        try:
            member, classic = self._validate(group, request.member_id, request.group_instance_id, request.generation_id)
            self._rebalance.touch(group.group_id, member.member_id, classic.session_timeout_ms)
            if _must_rejoin(group, member):
                code = ErrorCode.REBALANCE_IN_PROGRESS
                self._await_rejoin(group, member)
        except KafkaError as error:
            code = error.code
        draft.answer(waiter, HeartbeatResponse(error_code=code))
        return draft.decide()

    def _validate(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerMember, ClassicMember]:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = validate_static(group.static_member(instance_id), member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation_id != member.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    def _await_rejoin(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if ("rejoin", group.group_id, member.member_id) not in self._context.timers:
            reason = "it did not join again in time"
            self._schedule("rejoin", group.group_id, member.member_id, member.rebalance_timeout_ms, reason)

    def _schedule(self, kind: str, group_id: str, member_id: str, timeout_ms: int, reason: str) -> None:
        operation = partial(self._fencing.fence_silent, group_id, member_id, reason)
        self._context.timers.schedule((kind, group_id, member_id), timeout_ms, operation)

    # Leave

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        answers, leaving = [], {}
        for identity in request.members:
            code = ErrorCode.NONE
            try:
                member = self._leaving(group, identity)
                leaving[member.member_id] = member
            except KafkaError as error:
                code = error.code
            answers.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
        self._fencing.fence(group, list(leaving.values()), draft)
        draft.answer(waiter, LeaveGroupResponse(members=answers))
        return draft.decide()

    @staticmethod
    def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        """An administrator may remove a static member by its instance id alone."""
        instance_id = identity.group_instance_id
        if instance_id is None:
            return group.member(identity.member_id)
        existing = group.static_member(instance_id)
        member_id = identity.member_id or (existing.member_id if existing is not None else "")
        return validate_static(existing, member_id, instance_id)


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.member_epoch < group.assignment_epoch or member.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is ConsumerMemberState.UNRELEASED_PARTITIONS and not _waits(group, member)


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a different member still owns a partition of this member's target.

    A static member that is away (epoch -2) counts.
    """
    for topic_id, partitions in group.targets.get(member.member_id, {}).items():
        for partition in partitions - member.assigned.get(topic_id, {}).keys():
            if not group.is_free(topic_id, partition):
                return True
    return False


def _updated(
    member: ConsumerMember, caller: Caller, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    return replace(
        member,
        instance_id=request.group_instance_id if request.group_instance_id is not None else member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )


def _read_subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return embedded.read_subscription(bytes(request.protocols[0].metadata))
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscription cannot be read.") from error


def _validate_protocol(classic: ClassicMember, request: SyncGroupRequest) -> None:
    kind, name = request.protocol_type, request.protocol_name
    if kind not in (None, CONSUMER_PROTOCOL_TYPE) or name not in (None, classic.protocols[0][0]):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
