"""Which process has which task right now, given up or not yet given up: what keeps two members from having one task.

A process may not have a task twice either, not even once active and once as standby: both would use its state
directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ottla.coordinator.groups.streams.members import StreamsMember

_Copies = dict[tuple[str, int], Counter[str]]


class TaskOwners:
    def __init__(self) -> None:
        self.active: dict[tuple[str, int], str] = {}
        self.standby: _Copies = {}
        self.warmup: _Copies = {}

    def is_active(self, subtopology: str, partition: int) -> bool:
        return (subtopology, partition) in self.active

    def is_active_on(self, process_id: str, subtopology: str, partition: int) -> bool:
        return self.active.get((subtopology, partition)) == process_id

    def is_copied_on(self, process_id: str, subtopology: str, partition: int) -> bool:
        """The process has the task as standby or warm-up."""
        task = subtopology, partition
        return process_id in self.standby.get(task, ()) or process_id in self.warmup.get(task, ())

    def take(self, member: StreamsMember) -> None:
        for tasks in (member.assigned, member.pending_revocation):
            self.active.update(dict.fromkeys(_tasks(tasks.active), member.process_id))
            for copies, copied_tasks in ((self.standby, tasks.standby), (self.warmup, tasks.warmup)):
                for task in _tasks(copied_tasks):
                    copies.setdefault(task, Counter())[member.process_id] += 1

    def release(self, member: StreamsMember) -> None:
        for tasks in (member.assigned, member.pending_revocation):
            for task in _tasks(tasks.active):
                if self.active.get(task) == member.process_id:
                    del self.active[task]
            for copies, copied_tasks in ((self.standby, tasks.standby), (self.warmup, tasks.warmup)):
                for task in _tasks(copied_tasks):
                    _drop(copies, task, member.process_id)


def _drop(copies: _Copies, task: tuple[str, int], process_id: str) -> None:
    processes = copies.get(task)
    if processes is None or process_id not in processes:
        return
    processes[process_id] -= 1
    if processes[process_id] <= 0:
        del processes[process_id]
    if not processes:
        del copies[task]


def _tasks(tasks: Mapping[str, Iterable[int]]) -> list[tuple[str, int]]:
    return [(subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions]
