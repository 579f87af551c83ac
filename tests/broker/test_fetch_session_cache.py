"""The cache of fetch sessions beside Apache Kafka's own class, on random sessions of followers and consumers.

Sizes and times within a case are all different: two sessions that are worth the same are told apart by their ids, which
are random in both.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.broker.fetch.session_cache import FetchSessionShard
from ottla.broker.fetch.sessions import CachedPartition, FetchSession, PartitionKey
from ottla.model.ids import ZERO_UUID
from ottla.protocol.generated.fetch_request import FetchPartition
from tests.support.java_cases import java_answers

Step = tuple[str, ...]


class Random:
    def __init__(self) -> None:
        self._chosen = random.Random(5)

    def token_bytes(self, length: int) -> bytes:
        return self._chosen.randbytes(length)

    def uniform(self, low: float, high: float) -> float:
        return self._chosen.uniform(low, high)


def cases(seed: int, count: int) -> list[tuple[int, list[Step]]]:
    chosen = random.Random(seed)
    found = []
    for _ in range(count):
        now, created = 0, 0
        sizes = chosen.sample(range(1, 200), k=40)
        steps: list[Step] = []
        for size in sizes:
            now += chosen.choice((1, 10, 40_000, 119_999, 120_001))
            if created and chosen.random() < 0.55:
                session = str(chosen.randrange(max(0, created - 8), created))
                steps.append(("touch", str(now), session, str(size)))
            elif created and chosen.random() < 0.1:
                steps.append(("remove", str(chosen.randrange(created))))
            else:
                steps.append(("create", str(now), chosen.choice("001"), str(size)))
                created += 1
        found.append((chosen.randint(0, 5), steps))
    return found


def said(slots: int, steps: list[Step]) -> str:
    shard = FetchSessionShard(0, slots, Random())
    ids: list[int] = []
    answers = []
    for kind, *words in steps:
        if kind == "create":
            now_ms, privileged, size = float(words[0]), words[1] == "1", int(words[2])
            if shard.room(privileged=privileged, size=size, now_ms=now_ms):
                session = FetchSession(shard.new_id(), uses_topic_ids=False, privileged=privileged, now_ms=now_ms)
                fill(session, size)
                shard.touch(session, now_ms)
                ids.append(session.id)
            else:
                ids.append(0)
        elif kind == "touch":
            known = shard.sessions.get(ids[int(words[1])])
            if known is not None:
                fill(known, int(words[2]))
                shard.touch(known, float(words[0]))
        else:
            shard.remove(ids[int(words[0])])
        answers.append("+".join(str(number) for number, each in enumerate(ids) if each in shard.sessions))
    return ";".join(answers)


def fill(session: FetchSession, size: int) -> None:
    session.partitions.clear()
    session.partitions.update(
        (PartitionKey("t", ZERO_UUID, i), CachedPartition(FetchPartition(i))) for i in range(size)
    )


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
def test_same_sessions_as_apache_kafka(tmp_path: Path) -> None:
    asked = cases(227, 1000)
    lines = [f"{slots};{';'.join(','.join(step) for step in steps)}" for slots, steps in asked]
    answers = java_answers("FetchSessionCases.java", "org.apache.kafka.server.FetchSessionCases", lines, tmp_path)
    assert len(answers) == len(asked)
    wrong = [
        f"{slots} {steps}\n  kafka {answer}\n  ottla {said(slots, steps)}"
        for (slots, steps), answer in zip(asked, answers, strict=True)
        if said(slots, steps) != answer
    ]
    assert not wrong, f"{len(wrong)} of {len(asked)}:\n" + "\n".join(wrong[:3])


def test_never_more_than_there_are_slots_and_every_key_belongs_to_a_session() -> None:
    for slots, steps in cases(8, 300):
        for answer in said(slots, steps).split(";"):
            assert len([each for each in answer.split("+") if each]) <= slots
