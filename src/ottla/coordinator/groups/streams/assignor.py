"""The sticky assignor of Kafka 4.3: tasks stay with their members, as far as every member then has its share.

An active task goes back to its last owner, then to a member with its standby, then to the process with the least load.
A standby task goes to a process that does not have the active task. Java's maps and heaps are walked in Java's order,
so that both servers assign the same tasks to the same member. Kafka 4.3 assigns no warm-up tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.groups.streams.java_heap import JavaHeap
from ottla.coordinator.groups.streams.processes import ProcessState, Task
from ottla.coordinator.groups.streams.tasks import NO_TASKS, TargetTasks, Tasks
from ottla.model.java_order import strings_in_java_order


class StreamsMemberSpec(NamedTuple):
    process_id: str
    previous: TargetTasks


class SubtopologySpec(NamedTuple):
    tasks: int
    is_stateful: bool


class _Share:
    """How many tasks a member may still be given back, so that all of them come out even."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.per_member = _ceiling(tasks, members)

    def on_assigned(self, count: int) -> None:
        """A member now has `count` tasks: a full member leaves the rest to the other members."""
        if count == self.per_member:
            self._members -= 1
            self._tasks -= count
            self.per_member = _ceiling(self._tasks, self._members)


def assign(
    members: Mapping[str, StreamsMemberSpec], subtopologies: Mapping[str, SubtopologySpec], standby_replicas: int
) -> dict[str, TargetTasks]:
    """The target of each member, in the order of a Java map. `subtopologies` come in the order of their ids."""
    return _Assignment(members, subtopologies, standby_replicas).run()


class _Assignment:
    def __init__(
        self,
        members: Mapping[str, StreamsMemberSpec],
        subtopologies: Mapping[str, SubtopologySpec],
        standby_replicas: int,
    ) -> None:
        self._members = {member_id: members[member_id] for member_id in strings_in_java_order(members)}
        self._subtopologies = subtopologies
        self._replicas = standby_replicas
        active = sum(subtopology.tasks for subtopology in subtopologies.values())
        standby = (
            sum(subtopology.tasks for subtopology in subtopologies.values() if subtopology.is_stateful)
            * standby_replicas
        )
        self._active_share = _Share(active, len(members))
        self._total_share = _Share(active + standby, len(members))
        self._had_active: dict[Task, str] = {}
        self._had_standby: dict[Task, list[str]] = {}
        processes: dict[str, ProcessState] = {}
        for member_id, spec in self._members.items():
            processes.setdefault(spec.process_id, ProcessState()).add_member(member_id)
            self._had_active.update((task, member_id) for task in _listed(spec.previous.active))
            for task in _listed(spec.previous.standby):
                self._had_standby.setdefault(task, []).append(member_id)
        order = strings_in_java_order(processes, initial_capacity=len(members))
        self._processes = {process_id: processes[process_id] for process_id in order}

    def run(self) -> dict[str, TargetTasks]:
        self._assign_active()
        if self._replicas > 0:
            self._assign_standby()
        return {
            member_id: TargetTasks(
                _grouped(self._process(member_id).active.get(member_id, ())),
                _grouped(self._process(member_id).standby.get(member_id, ())),
                NO_TASKS,
            )
            for member_id in self._members
        }

    def _process(self, member_id: str) -> ProcessState:
        return self._processes[self._members[member_id].process_id]

    def _tasks(self, *, stateful_only: bool) -> list[Task]:
        return [
            Task(subtopology_id, partition)
            for subtopology_id, subtopology in self._subtopologies.items()
            if subtopology.is_stateful or not stateful_only
            for partition in range(subtopology.tasks)
        ]

    # Active tasks

    def _assign_active(self) -> None:
        tasks = sorted(self._tasks(stateful_only=False), key=_by_partition)
        tasks = [task for task in tasks if not self._give_back(task, self._had_active.get(task))]
        tasks = [task for task in tasks if not self._give_back(task, self._least_loaded(task))]
        heap = self._heap()
        for task in sorted(tasks):
            process = heap.poll()
            self._count_active(process.add_to_least_loaded(task, active=True))
            heap.add(process)

    def _give_back(self, task: Task, member_id: str | None) -> bool:
        if member_id is None or self._process(member_id).counts[member_id] >= self._active_share.per_member:
            return False
        self._count_active(self._process(member_id).add(member_id, task, active=True))
        return True

    def _count_active(self, count: int) -> None:
        self._active_share.on_assigned(count)
        self._total_share.on_assigned(count)

    # Standby tasks

    def _assign_standby(self) -> None:
        unplaced: list[tuple[Task, int]] = []
        for task in sorted(self._tasks(stateful_only=True), key=_by_partition, reverse=True):
            placed = 0
            while placed < self._replicas and self._give_back_standby(task):
                placed += 1
            if placed < self._replicas:
                unplaced.append((task, self._replicas - placed))
        heap = self._heap()
        for task, replicas in sorted(unplaced, reverse=True):
            for _ in range(replicas):
                if not self._place_standby(heap, task):
                    break

    def _give_back_standby(self, task: Task) -> bool:
        """To the last owner of the active task, or to an owner of its standby."""
        member_id = self._had_active.get(task)
        if member_id is None or self._process(member_id).has(task) or not self._has_room(member_id):
            member_id = self._least_loaded(task, without_task=True)
            if member_id is None or not self._has_room(member_id):
                return False
        self._total_share.on_assigned(self._process(member_id).add(member_id, task, active=False))
        return True

    def _has_room(self, member_id: str) -> bool:
        return self._process(member_id).counts[member_id] < self._total_share.per_member

    def _least_loaded(self, task: Task, *, without_task: bool = False) -> str | None:
        """The least loaded of the standby's owners.

        As in Kafka, only the process of the first owner counts in the end.
        """
        candidates = self._had_standby.get(task)
        if not candidates:
            return None
        chosen = candidates[0]
        first = self._process(chosen)
        load, count = first.load, first.counts[chosen]
        for member_id in candidates[1:]:
            process = self._process(member_id)
            if process.load >= load or (without_task and process.has(task)):
                continue
            if process.counts[member_id] < count:
                chosen, load, count = member_id, process.load, process.counts[member_id]
        return None if without_task and first.has(task) else chosen

    def _place_standby(self, heap: JavaHeap[ProcessState], task: Task) -> bool:
        """On the process with the least load that does not have the task."""
        passed: list[ProcessState] = []
        placed = False
        while heap and not placed:
            process = heap.poll()
            passed.append(process)
            if not process.has(task):
                self._total_share.on_assigned(process.add_to_least_loaded(task, active=False))
                placed = True
        for process in reversed(passed):
            heap.add(process)
        return placed

    def _heap(self) -> JavaHeap[ProcessState]:
        return JavaHeap(self._processes.values(), lambda process: process.load)


def _by_partition(task: Task) -> tuple[int, str]:
    return task.partition, task.subtopology


def _listed(tasks: Tasks) -> list[Task]:
    return [Task(subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions]


def _grouped(tasks: Iterable[Task]) -> Tasks:
    grouped: dict[str, set[int]] = {}
    for task in tasks:
        grouped.setdefault(task.subtopology, set()).add(task.partition)
    return {subtopology: frozenset(grouped[subtopology]) for subtopology in sorted(grouped)}


def _ceiling(tasks: int, members: int) -> int:
    return -(-tasks // members) if members else 0
