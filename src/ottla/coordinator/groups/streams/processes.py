"""A process of the application while tasks are assigned: its members (stream threads) and how much each has."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.groups.streams.java_heap import JavaHeap
from ottla.model.java_order import strings_in_java_order


class Task(NamedTuple):
    subtopology: str
    partition: int


class ProcessState:
    __slots__ = ("_by_load", "_tasks", "active", "counts", "standby")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.active: dict[str, set[Task]] = {}
        self.standby: dict[str, set[Task]] = {}
        self._tasks: set[Task] = set()
        self._by_load: JavaHeap[str] | None = None

    @property
    def load(self) -> float:
        return len(self._tasks) / len(self.counts)

    def add_member(self, member_id: str) -> None:
        self.counts[member_id] = 0

    def has(self, task: Task) -> bool:
        return task in self._tasks

    def add(self, member_id: str, task: Task, *, active: bool) -> int:
        """How many tasks the member has then."""
        self._by_load = None
        return self._add(member_id, task, active=active)

    def add_to_least_loaded(self, task: Task, *, active: bool) -> int:
        if self._by_load is None:
            self._by_load = JavaHeap(strings_in_java_order(self.counts), self.counts.__getitem__)
        member_id = self._by_load.poll()
        count = self._add(member_id, task, active=active)
        self._by_load.add(member_id)
        return count

    def _add(self, member_id: str, task: Task, *, active: bool) -> int:
        self._tasks.add(task)
        (self.active if active else self.standby).setdefault(member_id, set()).add(task)
        self.counts[member_id] += 1
        return self.counts[member_id]
