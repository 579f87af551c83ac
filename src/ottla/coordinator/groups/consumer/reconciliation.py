"""Moves one member from its current to its target partitions (KIP-848), one heartbeat at a time.

A member first gives up partitions (UNREVOKED_PARTITIONS, at its old epoch). Then the member moves to the target's epoch
and gets the free partitions. The member waits for partitions that their owners have not given up yet
(UNRELEASED_PARTITIONS). A partition is assigned only when no member owns it: this rule alone prevents two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from ottla.coordinator.groups.consumer.members import AssignedPartitions, ConsumerMember, ConsumerMemberState
from ottla.coordinator.groups.consumer.target import ConsumerTarget
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid

OwnedPartitions: TypeAlias = Mapping[Uuid, frozenset[int]]
OwnerEpoch: TypeAlias = Callable[[Uuid, int], int]
_Partitions: TypeAlias = dict[Uuid, dict[int, int]]

_FREE = -1
_NOTHING: dict[int, int] = {}


class ConsumerReconciliation:
    """One member against one target.

    `owned` is what the member reports as owned; None when the request has no such field.
    """

    def __init__(
        self,
        member: ConsumerMember,
        target: ConsumerTarget,
        owned: OwnedPartitions | None,
        subscribed: frozenset[Uuid],
        owner_epoch: OwnerEpoch,
    ) -> None:
        self._member = member
        self._target = target
        self._owned = owned
        self._subscribed = subscribed
        self._owner_epoch = owner_epoch

    def step(self, *, subscription_changed: bool) -> ConsumerMember:
        """The member after this step; the same object when the member must stay where it is."""
        member = self._member
        if member.state is ConsumerMemberState.STABLE:
            if member.member_epoch != self._target.epoch:
                return self._next()
            return self._drop_unsubscribed() if subscription_changed else member
        if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
            if self._owns(member.pending_revocation):
                return self._drop_unsubscribed() if subscription_changed else member
            return self._next()
        if member.state is ConsumerMemberState.UNKNOWN and (self._owned is None or self._owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin.",
            )
        return self._next()

    def _next(self) -> ConsumerMember:
        member, target = self._member, self._target
        assigned: _Partitions = {}
        revoked: _Partitions = {}
        new: _Partitions = {}
        waits = False
        for topic_id in {**target.partitions, **member.assigned}:
            target_partitions = (
                target.partitions.get(topic_id, frozenset()) if topic_id in self._subscribed else frozenset()
            )
            current = member.assigned.get(topic_id, _NOTHING)
            _keep(
                assigned,
                topic_id,
                {partition: epoch for partition, epoch in current.items() if partition in target_partitions},
            )
            _keep(
                revoked, topic_id, {index: epoch for index, epoch in current.items() if index not in target_partitions}
            )
            missing = target_partitions - current.keys()
            free = {partition for partition in missing if self._is_free(topic_id, partition)}
            waits = waits or len(free) < len(missing)
            _keep(new, topic_id, dict.fromkeys(free, target.epoch))
        if revoked and self._owns(revoked):
            return member.moved_to(ConsumerMemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoked)
        for topic_id, partitions in new.items():
            assigned[topic_id] = {**assigned.get(topic_id, {}), **partitions}
        state = ConsumerMemberState.UNRELEASED_PARTITIONS if waits else ConsumerMemberState.STABLE
        return member.moved_to(state, target.epoch, assigned, {})

    def _is_free(self, topic_id: Uuid, partition: int) -> bool:
        """A partition that the member itself was giving up counts as free: no other member has it."""
        own = partition in self._member.pending_revocation.get(topic_id, _NOTHING)
        return own or self._owner_epoch(topic_id, partition) == _FREE

    def _drop_unsubscribed(self) -> ConsumerMember:
        """Topics that the member does not want any more go at once, without waiting for a new target."""
        member = self._member
        dropped = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in self._subscribed}
        if not dropped:
            return member
        assigned = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id in self._subscribed}
        revoked = {topic_id: dict(partitions) for topic_id, partitions in member.pending_revocation.items()}
        for topic_id, partitions in dropped.items():
            revoked[topic_id] = {**revoked.get(topic_id, {}), **partitions}
        if self._owns(revoked):
            return member.moved_to(ConsumerMemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoked)
        return replace(member, previous_member_epoch=member.member_epoch, assigned=assigned)

    def _owns(self, partitions: AssignedPartitions) -> bool:
        """Whether the member may still own any of these: a member that does not report its partitions may."""
        if self._owned is None:
            return True
        return any(not owned.isdisjoint(partitions.get(topic_id, ())) for topic_id, owned in self._owned.items())


def _keep(into: _Partitions, topic_id: Uuid, partitions: dict[int, int]) -> None:
    if partitions:
        into[topic_id] = partitions
