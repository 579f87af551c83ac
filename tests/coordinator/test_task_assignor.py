"""The sticky task assignor beside Apache Kafka's own class, on random groups that come and go.

Each case goes on from what the last one gave: members leave and come, subtopologies grow, standby replicas change. Both
must give the same member the same tasks, ties and all.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.coordinator.groups.streams.assignor import StreamsMemberSpec, SubtopologySpec, assign
from ottla.coordinator.groups.streams.tasks import NO_TARGET, TargetTasks, Tasks
from tests.support.java_cases import java_answers

Members = dict[str, StreamsMemberSpec]
Subtopologies = dict[str, SubtopologySpec]


def cases(seed: int, count: int) -> list[tuple[Members, Subtopologies, int]]:
    chosen = random.Random(seed)
    generated: list[tuple[Members, Subtopologies, int]] = []
    members: Members = {}
    for number in range(count):
        if number % 8 == 0:
            members = {}
        for member_id in chosen.sample(sorted(members), k=len(members) // 3):
            del members[member_id]
        for _ in range(chosen.randint(0 if members else 1, 6)):
            process = f"process-{chosen.randint(0, 5)}"
            members[f"{process}-{chosen.getrandbits(64):016x}"] = StreamsMemberSpec(process, NO_TARGET)
        subtopologies = {
            str(subtopology_number): SubtopologySpec(chosen.randint(1, 9), chosen.random() < 0.6)
            for subtopology_number in range(1 + number % 4)
        }
        replicas = chosen.choice((0, 0, 1, 2))
        generated.append((dict(members), subtopologies, replicas))
        assignment = assign(members, subtopologies, replicas)
        members = {member_id: spec._replace(previous=assignment[member_id]) for member_id, spec in members.items()}
    return generated


def line(members: Members, subtopologies: Subtopologies, replicas: int) -> str:
    topology = ",".join(
        f"{subtopology_id}:{spec.tasks}:{int(spec.is_stateful)}" for subtopology_id, spec in subtopologies.items()
    )
    group = ",".join(
        f"{member_id}:{spec.process_id}:{_text(spec.previous.active)}:{_text(spec.previous.standby)}"
        for member_id, spec in members.items()
    )
    return f"{replicas};{topology};{group}"


def said(assignment: dict[str, TargetTasks]) -> str:
    return ";".join(
        f"{member_id}={_text(assignment[member_id].active)}|{_text(assignment[member_id].standby)}"
        for member_id in sorted(assignment)
    )


def _text(tasks: Tasks) -> str:
    return (
        "+".join(
            f"{subtopology_id}_{index}" for subtopology_id in sorted(tasks) for index in sorted(tasks[subtopology_id])
        )
        or "-"
    )


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
def test_same_tasks_as_apache_kafka(tmp_path: Path) -> None:
    inputs = cases(1071, 2000)
    answers = java_answers("TaskAssignments.java", "TaskAssignments", (line(*case) for case in inputs), tmp_path)
    assert len(answers) == len(inputs)
    wrong = [
        f"{line(*case)}\n  kafka {answer}\n  ottla {said(assign(*case))}"
        for case, answer in zip(inputs, answers, strict=True)
        if said(assign(*case)) != answer
    ]
    assert not wrong, f"{len(wrong)} of {len(inputs)}:\n" + "\n".join(wrong[:3])


def test_every_task_is_given_once_and_no_process_has_it_twice() -> None:
    for members, subtopologies, replicas in cases(7, 200):
        assignment = assign(members, subtopologies, replicas)
        active = [
            (subtopology_id, i)
            for tasks in assignment.values()
            for subtopology_id in tasks.active
            for i in tasks.active[subtopology_id]
        ]
        all_tasks = {(subtopology_id, i) for subtopology_id, spec in subtopologies.items() for i in range(spec.tasks)}
        assert len(active) == len(all_tasks)
        assert set(active) == all_tasks
        on_process = [
            (members[member_id].process_id, subtopology_id, i)
            for member_id, tasks in assignment.items()
            for kind in (tasks.active, tasks.standby)
            for subtopology_id in kind
            for i in kind[subtopology_id]
        ]
        assert len(on_process) == len(set(on_process))
        processes = len({spec.process_id for spec in members.values()})
        stateful = sum(spec.tasks for spec in subtopologies.values() if spec.is_stateful)
        assert len(on_process) == len(all_tasks) + stateful * min(replicas, processes - 1)
