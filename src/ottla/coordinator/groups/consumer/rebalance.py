"""The steps of a member's request in its group: subscription, group epoch, target, reconciliation; and timers.

Members of both protocols share these steps. Everything here decides; the drafted records make the change.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.consumer.fencing import ConsumerFencing
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.group_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    target_record,
)
from ottla.coordinator.groups.consumer.members import ConsumerMember, ConsumerMemberState
from ottla.coordinator.groups.consumer.reconciliation import ConsumerReconciliation, OwnedPartitions
from ottla.coordinator.groups.consumer.regular_expressions import RegexChange, RegularExpressions
from ottla.coordinator.groups.consumer.target import ConsumerTarget, ConsumerTargetAssignment
from ottla.coordinator.groups.group import GroupKind
from ottla.coordinator.groups.shard_context import ShardContext, session_key
from ottla.env.logging import get_logger

log = get_logger(__name__)


def rebalance_key(group_id: str, member_id: str) -> Hashable:
    return ("rebalance", group_id, member_id)


class ConsumerRebalance:
    def __init__(self, context: ShardContext, fencing: ConsumerFencing) -> None:
        self._context = context
        self._fencing = fencing
        self._expressions = RegularExpressions(context)
        self._target = ConsumerTargetAssignment(context)

    def subscribe(
        self, caller: Caller, group: ConsumerGroup, old: ConsumerMember, updated: ConsumerMember, draft: Draft
    ) -> tuple[int, bool]:
        """Draft the member's subscription; returns the group's epoch, and whether the subscription changed.

        A new expression that is not resolved yet does not bump the epoch of a group of consumer-protocol members. A
        classic member that replaces a member with an expression does.
        """
        changed = False
        if updated is not old and updated != old:
            draft.records.append(member_record(group.group_id, updated))
            changed = updated.subscribed_topic_names != old.subscribed_topic_names
        regex = self._expressions.update(caller, group, old, updated, draft)
        regex_changed = regex is not RegexChange.NONE
        bump = changed or regex is RegexChange.RESOLVED or (updated.uses_classic_protocol and regex_changed)
        epoch = group.group_epoch
        if bump or group.refresh_due:
            epoch = self._update_epoch(group, old, updated, draft, bump=bump)
        return epoch, changed or regex_changed

    def _update_epoch(
        self, group: ConsumerGroup, old: ConsumerMember, updated: ConsumerMember, draft: Draft, *, bump: bool
    ) -> int:
        topics = group.subscriptions.changed(old, updated).topics()
        metadata_hash = self._context.topic_hashes.group_hash(topics, self._context.image)
        epoch = group.group_epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            draft.records.append(epoch_record(group.group_id, epoch, metadata_hash))
            log.info("group.epoch_bumped", group=group.group_id, epoch=epoch)
            self._context.rebalances[GroupKind.CONSUMER] += 1
        elif not draft.records:
            group.refreshed()
        if group.has_partition_metadata:
            draft.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def assign(
        self, group: ConsumerGroup, epoch: int, old: ConsumerMember, updated: ConsumerMember, draft: Draft
    ) -> ConsumerTarget:
        if group.assignment_epoch >= epoch:
            return ConsumerTarget(group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id))
        subscriptions = group.subscriptions.changed(old, updated)
        return self._target.update(group, epoch, old, updated, subscriptions, draft)

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: ConsumerTarget,
        owned: OwnedPartitions | None,
        draft: Draft,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        if not subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        topics = self._context.image.topics_by_name
        names = group.subscriptions.topics_of(member)
        subscribed = frozenset(topics[name].id for name in names if name in topics)
        reconciliation = ConsumerReconciliation(member, target, owned, subscribed, group.owner_epoch)
        updated = reconciliation.step(subscription_changed=subscription_changed)
        if updated is member or updated == member:
            return member
        draft.records.append(current_record(group.group_id, updated))
        if not updated.uses_classic_protocol:
            self._await_revocation(group.group_id, updated)
        return updated

    def replace_static(self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, draft: Draft) -> None:
        """Give `new` the place, the target and the partitions of `old`, under the member id of `new`."""
        draft.records += member_tombstones(group.group_id, old.member_id)
        draft.records.append(member_record(group.group_id, new))
        draft.records.append(target_record(group.group_id, new.member_id, group.targets.get(old.member_id, {})))
        draft.records.append(current_record(group.group_id, new))

    # Timers

    def touch(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """The member lives: move the end of its session."""
        if timeout_ms is None:
            timeout_ms = self._context.consumer_timings(group_id).consumer_session_timeout_ms
        expire = partial(self._fencing.fence_silent, group_id, member_id, "its session ended")
        self._context.timers.schedule(session_key(group_id, member_id), timeout_ms, expire)

    def on_loaded(self, group: ConsumerGroup) -> None:
        for member in group.members.values():
            self.touch(group.group_id, member.member_id)
            if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
                self._await_revocation(group.group_id, member)

    def _await_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """A member that must give up partitions has its rebalance timeout for the revocation."""
        key = rebalance_key(group_id, member.member_id)
        if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
            operation = partial(self._expire_revocation, group_id, member.member_id, member.member_epoch)
            self._context.timers.schedule(key, member.rebalance_timeout_ms, operation)
        else:
            self._context.timers.cancel(key)

    def _expire_revocation(self, group_id: str, member_id: str, member_epoch: int) -> GroupDecision:
        group = self._context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or member.member_epoch != member_epoch:
            return Draft().decide()
        return self._fencing.fence_silent(group_id, member_id, f"it did not leave epoch {member_epoch} in time")
