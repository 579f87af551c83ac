"""Tasks: a subtopology and a partition number. A member has active tasks, and standby and warm-up tasks for state.

The active tasks of a member carry the epoch at which the member got them. An offset commit with an older member epoch
is accepted for tasks that the member has had since that epoch (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

Tasks: TypeAlias = Mapping[str, frozenset[int]]
"""subtopology id -> partitions."""

ActiveTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""subtopology id -> partition -> the member epoch at which the task was assigned."""


class TargetTasks(NamedTuple):
    """The target tasks of a member, or the tasks that a member reports as owned."""

    active: Tasks
    standby: Tasks
    warmup: Tasks

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, assigned: AssignedTasks) -> bool:
        return (
            _overlap(self.active, assigned.active)
            or _overlap(self.standby, assigned.standby)
            or _overlap(self.warmup, assigned.warmup)
        )

    def are_all_in(self, assigned: AssignedTasks) -> bool:
        return (
            _contained(self.active, assigned.active)
            and _contained(self.standby, assigned.standby)
            and _contained(self.warmup, assigned.warmup)
        )


class AssignedTasks(NamedTuple):
    """The tasks that a member has."""

    active: ActiveTasks
    standby: Tasks
    warmup: Tasks

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def merged(self, other: AssignedTasks) -> AssignedTasks:
        active = {subtopology: dict(partitions) for subtopology, partitions in self.active.items()}
        for subtopology, partitions in other.active.items():
            active.setdefault(subtopology, {}).update(partitions)
        return AssignedTasks(active, _merged(self.standby, other.standby), _merged(self.warmup, other.warmup))


NO_TASKS: Tasks = {}
NO_TARGET = TargetTasks({}, {}, {})
NOTHING_ASSIGNED = AssignedTasks({}, {}, {})


def tasks_from(listed: Iterable[Any]) -> Tasks:
    """From the `TaskIds` of any message or record."""
    return {tasks.subtopology_id: frozenset(tasks.partitions) for tasks in listed}


def _overlap(owned: Tasks, assigned: Mapping[str, Iterable[int]]) -> bool:
    return any(not owned[subtopology].isdisjoint(assigned.get(subtopology, ())) for subtopology in owned)


def _contained(owned: Tasks, assigned: Mapping[str, Iterable[int]]) -> bool:
    return all(
        subtopology in assigned and owned[subtopology] <= frozenset(assigned[subtopology]) for subtopology in owned
    )


def _merged(first: Tasks, second: Tasks) -> Tasks:
    return {
        subtopology: first.get(subtopology, frozenset()) | second.get(subtopology, frozenset())
        for subtopology in {**first, **second}
    }
