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
    found: list[tuple[Members, Subtopologies, int]] = []
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
            str(each): SubtopologySpec(chosen.randint(1, 9), chosen.random() < 0.6) for each in range(1 + number % 4)
        }
        replicas = chosen.choice((0, 0, 1, 2))
        found.append((dict(members), subtopologies, replicas))
        given = assign(members, subtopologies, replicas)
        members = {member_id: spec._replace(previous=given[member_id]) for member_id, spec in members.items()}
    return found


def line(members: Members, subtopologies: Subtopologies, replicas: int) -> str:
    topology = ",".join(f"{each}:{spec.tasks}:{int(spec.is_stateful)}" for each, spec in subtopologies.items())
    group = ",".join(
        f"{member_id}:{spec.process_id}:{_text(spec.previous.active)}:{_text(spec.previous.standby)}"
        for member_id, spec in members.items()
    )
    return f"{replicas};{topology};{group}"


def said(given: dict[str, TargetTasks]) -> str:
    return ";".join(f"{each}={_text(given[each].active)}|{_text(given[each].standby)}" for each in sorted(given))


def _text(tasks: Tasks) -> str:
    return "+".join(f"{each}_{index}" for each in sorted(tasks) for index in sorted(tasks[each])) or "-"


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
def test_same_tasks_as_apache_kafka(tmp_path: Path) -> None:
    asked = cases(1071, 2000)
    answers = java_answers("TaskAssignments.java", "TaskAssignments", (line(*each) for each in asked), tmp_path)
    assert len(answers) == len(asked)
    wrong = [
        f"{line(*each)}\n  kafka {answer}\n  ottla {said(assign(*each))}"
        for each, answer in zip(asked, answers, strict=True)
        if said(assign(*each)) != answer
    ]
    assert not wrong, f"{len(wrong)} of {len(asked)}:\n" + "\n".join(wrong[:3])


def test_every_task_is_given_once_and_no_process_has_it_twice() -> None:
    for members, subtopologies, replicas in cases(7, 200):
        given = assign(members, subtopologies, replicas)
        active = [(each, i) for tasks in given.values() for each in tasks.active for i in tasks.active[each]]
        wanted = {(each, i) for each, spec in subtopologies.items() for i in range(spec.tasks)}
        assert len(active) == len(wanted)
        assert set(active) == wanted
        on_process = [
            (members[member_id].process_id, each, i)
            for member_id, tasks in given.items()
            for kind in (tasks.active, tasks.standby)
            for each in kind
            for i in kind[each]
        ]
        assert len(on_process) == len(set(on_process))
        processes = len({spec.process_id for spec in members.values()})
        stateful = sum(spec.tasks for spec in subtopologies.values() if spec.is_stateful)
        assert len(on_process) == len(wanted) + stateful * min(replicas, processes - 1)
