"""Members that go: because they leave, are silent for too long, or do not give up tasks in time."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.shard_context import ShardContext, session_key
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.group_records import group_record, member_tombstones
from ottla.coordinator.groups.streams.members import StreamsMember, StreamsMemberState
from ottla.coordinator.groups.streams.timings import streams_timings
from ottla.env.logging import get_logger

log = get_logger(__name__)


def rebalance_key(group_id: str, member_id: str) -> Hashable:
    return ("rebalance", group_id, member_id)


class StreamsFencing:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def fence(self, group: StreamsGroup, member: StreamsMember, draft: Draft) -> None:
        """Remove the member.

        The group gets a new epoch, and the next heartbeat of any member assigns the tasks again.
        """
        draft.records += member_tombstones(group.group_id, member.member_id)
        draft.records.append(
            group_record(
                group.group_id,
                group.group_epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            )
        )
        self._context.timers.cancel(session_key(group.group_id, member.member_id))
        self._context.timers.cancel(rebalance_key(group.group_id, member.member_id))

    def touch(self, group_id: str, member_id: str) -> None:
        """The member lives: move the end of its session."""
        timings = streams_timings(group_id, self._context.image, self._context.settings)
        expire = partial(self._fence_silent, group_id, member_id, None)
        self._context.timers.schedule(session_key(group_id, member_id), timings.session_timeout_ms, expire)

    def await_revocation(self, group_id: str, member: StreamsMember) -> None:
        """A member that must give up tasks has its rebalance timeout for the revocation."""
        key = rebalance_key(group_id, member.member_id)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            operation = partial(self._fence_silent, group_id, member.member_id, member.member_epoch)
            self._context.timers.schedule(key, member.rebalance_timeout_ms, operation)
        else:
            self._context.timers.cancel(key)

    def on_loaded(self, group: StreamsGroup) -> None:
        for member in group.members.values():
            self.touch(group.group_id, member.member_id)
            if member.state is StreamsMemberState.UNREVOKED_TASKS:
                self.await_revocation(group.group_id, member)

    def _fence_silent(self, group_id: str, member_id: str, stuck_in_epoch: int | None) -> GroupDecision:
        """The operation of a timer; does nothing when the member has gone already or has left the epoch."""
        draft = Draft()
        group = self._context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, StreamsGroup) else None
        if isinstance(group, StreamsGroup) and member is not None and stuck_in_epoch in (None, member.member_epoch):
            reason = "its session ended" if stuck_in_epoch is None else f"it did not leave epoch {stuck_in_epoch}"
            log.info("member.fenced", group=group_id, member=member_id, reason=reason)
            self.fence(group, member, draft)
        return draft.decide()
