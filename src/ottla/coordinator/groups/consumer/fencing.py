"""Members that go: they leave, miss their session timeout, or do not give up partitions in time.

A removal is a new epoch of the group. When only members of the classic protocol remain, the group becomes a classic
group (`migration`).
"""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.group_records import epoch_record, member_tombstones, regex_record
from ottla.coordinator.groups.consumer.members import ConsumerMember
from ottla.coordinator.groups.consumer.migration import Migration
from ottla.coordinator.groups.shard_context import ShardContext, session_key
from ottla.env.logging import get_logger

log = get_logger(__name__)


class ConsumerFencing:
    def __init__(self, context: ShardContext, migration: Migration) -> None:
        self._context = context
        self._migration = migration

    def fence(self, group: ConsumerGroup, members: list[ConsumerMember], draft: Draft) -> None:
        if not members:
            return
        if self._migration.must_downgrade_without(group, members):
            self._migration.downgrade(group, draft, leaving=members)
            return
        for member in members:
            draft.records += member_tombstones(group.group_id, member.member_id)
        after = group.subscriptions.without(members)
        unused_regexes = group.subscriptions.regexes.keys() - after.regexes.keys()
        draft.records += [regex_record(group.group_id, regex, None) for regex in sorted(unused_regexes)]
        metadata_hash = self._context.topic_hashes.group_hash(after.topics(), self._context.image)
        draft.records.append(epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
        for member in members:
            self.cancel_timers(group.group_id, member.member_id)

    def fence_silent(self, group_id: str, member_id: str, reason: str) -> GroupDecision:
        """The operation of a timer; does nothing when the member has gone already."""
        draft = Draft()
        group = self._context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if isinstance(group, ConsumerGroup) and member is not None:
            log.info("member.fenced", group=group_id, member=member_id, reason=reason)
            self.fence(group, [member], draft)
        return draft.decide()

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        self._context.timers.cancel(session_key(group_id, member_id))
        for kind in ("rebalance", "rejoin", "resync"):
            self._context.timers.cancel((kind, group_id, member_id))
