"""The target assignment: the tasks that every member should have, computed when the group's epoch moved on.

At most once in group.streams.assignment.interval.ms, and for the first time after the initial delay: many threads that
start at once cause one computation.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.streams import assignor
from ottla.coordinator.groups.streams.configuration import ConfiguredTopology
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.group_records import target_epoch_record, target_record
from ottla.coordinator.groups.streams.members import StreamsMember
from ottla.coordinator.groups.streams.reconciliation import StreamsTarget
from ottla.coordinator.groups.streams.statuses import StatusCode
from ottla.coordinator.groups.streams.tasks import NO_TARGET, TargetTasks
from ottla.coordinator.groups.streams.timings import StreamsTimings, streams_timings
from ottla.env.logging import get_logger
from ottla.protocol.generated.streams_group_heartbeat_response import Status

log = get_logger(__name__)


def initial_key(group_id: str) -> Hashable:
    return ("streams-initial", group_id)


class StreamsTargetAssignment:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def update(
        self,
        group: StreamsGroup,
        group_epoch: int,
        updated: StreamsMember,
        configured: ConfiguredTopology,
        timings: StreamsTimings,
        statuses: list[Status],
        draft: Draft,
    ) -> StreamsTarget:
        """The target of `updated`: computed when the group's epoch moved and the interval has passed, else the last
        target."""
        if initial_key(group.group_id) in self._context.timers:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))
            return StreamsTarget(group.assignment_epoch, NO_TARGET)
        last = StreamsTarget(group.assignment_epoch, group.targets.get(updated.member_id, NO_TARGET))
        if group.assignment_epoch >= group_epoch:
            return last
        if not self._is_due(group, timings):
            detail = "Assignment delayed due to the configured assignment interval."
            statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))
            return last
        members = {**group.members, updated.member_id: updated}
        targets = self._compute(group, group_epoch, members, configured, timings.assignment_configs, draft)
        return StreamsTarget(group_epoch, targets[updated.member_id])

    def delay_first(self, group_id: str, timings: StreamsTimings) -> None:
        """The group has no members yet: wait for other threads that start now."""
        key = initial_key(group_id)
        if timings.initial_rebalance_delay_ms > 0 and key not in self._context.timers:
            operation = partial(self._compute_delayed, group_id)
            self._context.timers.schedule(key, timings.initial_rebalance_delay_ms, operation)

    def _compute_delayed(self, group_id: str) -> GroupDecision:
        """The initial delay is over.

        A group with only one heartbeat so far waits for the next heartbeat, as in Kafka.
        """
        draft = Draft()
        group = self._context.groups.get(group_id)
        if not isinstance(group, StreamsGroup) or group.is_empty or group.configured is None:
            return draft.decide()
        timings = streams_timings(group_id, self._context.image, self._context.settings)
        if group.group_epoch > group.assignment_epoch and self._is_due(group, timings):
            configs = group.assignment_configs
            self._compute(group, group.group_epoch, group.members, group.configured, configs, draft)
        return draft.decide()

    def _is_due(self, group: StreamsGroup, timings: StreamsTimings) -> bool:
        if group.assignment_timestamp_ms == 0 or timings.assignment_interval_ms == 0:
            return True
        return self._context.has_passed(group.assignment_timestamp_ms, timings.assignment_interval_ms)

    def _compute(
        self,
        group: StreamsGroup,
        epoch: int,
        members: Mapping[str, StreamsMember],
        configured: ConfiguredTopology,
        configs: Mapping[str, str],
        draft: Draft,
    ) -> dict[str, TargetTasks]:
        """Records for every member whose target changed, and for the epoch."""
        specs = {
            member_id: assignor.StreamsMemberSpec(member.process_id, group.targets.get(member_id, NO_TARGET))
            for member_id, member in members.items()
        }
        # A topology that is not ready has no tasks to give.
        subtopologies = {
            subtopology_id: assignor.SubtopologySpec(subtopology.tasks, subtopology.is_stateful)
            for subtopology_id, subtopology in configured.subtopologies.items()
            if configured.is_ready
        }
        replicas = int(configs.get("num.standby.replicas", 0))
        targets = assignor.assign(specs, subtopologies, replicas)
        for member_id, tasks in targets.items():
            if group.targets.get(member_id) != tasks:
                draft.records.append(target_record(group.group_id, member_id, tasks))
        draft.records.append(target_epoch_record(group.group_id, epoch, self._context.clock.time_ms()))
        log.info("target.computed", group=group.group_id, epoch=epoch, members=len(members))
        return targets
