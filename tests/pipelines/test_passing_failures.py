"""A run over what is there starts a query again after a failure of Spark itself that passes, and no other.

Spark's races cannot be provoked at will: queries that fail with the texts that Spark gave stand in for them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.env.restarts import MAX_RESTARTS
from ottla.pipelines import run
from ottla.pipelines.build import RunSettings
from ottla.pipelines.run import PipelineRun, Running, StepFailed

JOB = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0: "
PASSING = [
    f"{JOB}java.io.OptionalDataException\n\tat java.base/java.util.HashMap.readObject(HashMap.java:1550)",
    f"{JOB}java.util.ConcurrentModificationException",
    "Python worker failed to connect back.",
]


class Query:
    isActive = False  # noqa: N815 - Spark's name
    lastProgress = None  # noqa: N815 - Spark's name

    def __init__(self, problem: str | None) -> None:
        self._problem = problem

    def exception(self) -> Exception | None:
        return None if self._problem is None else RuntimeError(self._problem)

    def stop(self) -> None:
        pass


def work_through(problems: list[str | None], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a query was started that fails with these texts, one after the other."""
    monkeypatch.setattr(run, "pause_s", lambda _: 0.0)
    step: Any = SimpleNamespace(name="to-delta")
    started = iter(problems)
    query = Running(name="copy/to-delta", step=step, start=lambda: Query(next(started)))  # type: ignore[arg-type,return-value]
    pipeline: Any = SimpleNamespace(in_order=list, steps=[step])
    session: Any = None
    settings = RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints="")
    PipelineRun(session, pipeline, settings)._work_through([query], None)
    return query.restarts


@pytest.mark.parametrize("text", PASSING)
def test_a_failure_that_passes_is_started_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work_through([text, text, None], monkeypatch) == 2
    with pytest.raises(StepFailed):
        work_through([text] * (MAX_RESTARTS + 1), monkeypatch)


def test_other_failures_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StepFailed, match="ValueError: bad"):
        work_through([f"{JOB}ValueError: bad", None], monkeypatch)
