"""Moves one member from its current to its target tasks, one heartbeat at a time.

A member first gives up tasks (UNREVOKED_TASKS). Then the member moves to the target's epoch and gets the free tasks.
The member waits for tasks that their owners have not given up yet (UNRELEASED_TASKS). An active task is assigned only
when no member has it. No task is assigned while the member's own process still has the task in a different role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.coordinator.groups.streams.members import StreamsMember, StreamsMemberState
from ottla.coordinator.groups.streams.owners import TaskOwners
from ottla.coordinator.groups.streams.tasks import NOTHING_ASSIGNED, AssignedTasks, TargetTasks, Tasks
from ottla.model.errors import ErrorCode, KafkaError


class StreamsTarget(NamedTuple):
    epoch: int
    tasks: TargetTasks


class _Difference(NamedTuple):
    retained: dict[str, dict[int, int]]
    revoked: dict[str, dict[int, int]]
    new: dict[str, dict[int, int]]
    waits: bool


class StreamsReconciliation:
    """One member against one target.

    `owned` is what the member reports as owned; None when the request has no such field.
    """

    def __init__(
        self, member: StreamsMember, target: StreamsTarget, owned: TargetTasks | None, owners: TaskOwners
    ) -> None:
        self._member = member
        self._target = target
        self._owned = owned
        self._owners = owners

    def step(self) -> StreamsMember:
        """The member after this step; the same object when the member must stay where it is."""
        member, owned = self._member, self._owned
        if member.state is StreamsMemberState.STABLE:
            return member if member.member_epoch == self._target.epoch else self._next(member.member_epoch)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            if owned is None or owned.has_any_of(member.pending_revocation):
                return member
            return self._next(member.member_epoch + 1)
        if member.state is StreamsMemberState.UNRELEASED_TASKS:
            return self._next(member.member_epoch)
        if owned is None or not owned.is_empty:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        return self._next(self._target.epoch)

    def _next(self, epoch_while_revoking: int) -> StreamsMember:
        member, target, assigned = self._member, self._target, self._member.assigned
        active = self._difference(assigned.active, target.tasks.active, self._is_taken)
        standby = self._difference(_plain(assigned.standby), target.tasks.standby, self._is_here)
        warmup = self._difference(_plain(assigned.warmup), target.tasks.warmup, self._is_here)
        retained = AssignedTasks(active.retained, _sets(standby.retained), _sets(warmup.retained))
        revoked = AssignedTasks(active.revoked, _sets(standby.revoked), _sets(warmup.revoked))
        if not revoked.is_empty and (self._owned is None or self._owned.has_any_of(revoked)):
            return member.moved_to(StreamsMemberState.UNREVOKED_TASKS, epoch_while_revoking, retained, revoked)
        waits = active.waits or standby.waits or warmup.waits
        state = StreamsMemberState.UNRELEASED_TASKS if waits else StreamsMemberState.STABLE
        new = AssignedTasks(active.new, _sets(standby.new), _sets(warmup.new))
        return member.moved_to(state, target.epoch, retained.merged(new), NOTHING_ASSIGNED)

    def _difference(
        self, current: Mapping[str, Mapping[int, int]], target: Tasks, is_unreleased: Callable[[str, int], bool]
    ) -> _Difference:
        difference = _Difference({}, {}, {}, False)
        waits = False
        for subtopology in {**target, **current}:
            target_partitions = target.get(subtopology, frozenset())
            has = current.get(subtopology, {})
            missing = target_partitions - has.keys()
            free = {partition for partition in missing if not is_unreleased(subtopology, partition)}
            waits = waits or len(free) < len(missing)
            for into, partitions in (
                (difference.retained, {index: epoch for index, epoch in has.items() if index in target_partitions}),
                (difference.revoked, {index: epoch for index, epoch in has.items() if index not in target_partitions}),
                (difference.new, dict.fromkeys(free, self._target.epoch)),
            ):
                if partitions:
                    into[subtopology] = partitions
        return difference._replace(waits=waits)

    def _is_taken(self, subtopology: str, partition: int) -> bool:
        """An active task is not free while any process has it."""
        process_id = self._member.process_id
        return self._owners.is_active(subtopology, partition) or self._owners.is_copied_on(
            process_id, subtopology, partition
        )

    def _is_here(self, subtopology: str, partition: int) -> bool:
        """A copy is not free while this process has the task."""
        process_id = self._member.process_id
        return self._owners.is_active_on(process_id, subtopology, partition) or self._owners.is_copied_on(
            process_id, subtopology, partition
        )


def _plain(tasks: Tasks) -> dict[str, dict[int, int]]:
    """Copies have no epochs of their own."""
    return {subtopology: dict.fromkeys(partitions, 0) for subtopology, partitions in tasks.items()}


def _sets(tasks: Mapping[str, Mapping[int, int]]) -> Tasks:
    return {subtopology: frozenset(partitions) for subtopology, partitions in tasks.items()}
