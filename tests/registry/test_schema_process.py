"""Large schemas are checked in a process that may die, with the verdicts and the steps of the thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.registry.errors import RegistryError
from ottla.registry.schema_jobs import NEW, SchemaJob, SchemaJobs, SchemaSource
from ottla.registry.schema_process import SchemaProcess
from ottla.registry.schema_work import SMALL_CHARACTERS, SchemaThread
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parsed import Dependency, SchemaProblem
from tests.registry.instances import call

pytestmark = pytest.mark.timeout(180)
LONG = "x" * SMALL_CHARACTERS


def avro(kind: str) -> SchemaSource:
    fields = [{"name": "a", "type": kind, "doc": LONG}]
    return SchemaSource("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))


def document(kind: str) -> SchemaSource:
    return SchemaSource(
        "JSON", json.dumps({"type": "object", "properties": {"a": {"type": kind}}, "description": LONG})
    )


def proto(kind: str) -> SchemaSource:
    return SchemaSource("PROTOBUF", f'syntax = "proto3"; // {LONG}\nmessage M {{ {kind} a = 1; }}')


@pytest.fixture(scope="module")
def process() -> Iterator[SchemaProcess]:
    made = SchemaProcess()
    yield made
    made.close()


@pytest.mark.parametrize("source", [avro("int"), document("string"), proto("int32")])
@pytest.mark.parametrize("form", [NEW, "canonical", "normalized", "serialized"])
def test_a_text_is_the_threads(process: SchemaProcess, source: SchemaSource, form: str) -> None:
    here, there = Budget(1_000_000), Budget(1_000_000)
    assert process.run(SchemaJob(form, source), there) == SchemaJobs().run(SchemaJob(form, source), here)
    assert there.spent == here.spent > 0


@pytest.mark.parametrize(
    ("old", "new"), [(avro("string"), avro("int")), (document("string"), document("integer")), (proto("string"), proto("int32"))]
)  # fmt: skip
def test_findings_are_the_threads(process: SchemaProcess, old: SchemaSource, new: SchemaSource) -> None:
    job = SchemaJob("FULL", new, 7, old)
    here, there = Budget(1_000_000), Budget(1_000_000)
    expected = SchemaJobs().run(job, here)
    assert process.run(job, there) == expected
    assert expected
    assert there.spent == here.spent


def test_a_problem_is_the_threads(process: SchemaProcess) -> None:
    broken = SchemaJob(NEW, SchemaSource("AVRO", f'{{"type": "nothing", "doc": "{LONG}"}}'))
    for left in (1_000_000, 10):  # no schema; too few steps
        problems = []
        for run in (SchemaJobs().run, process.run):
            budget = Budget(1_000_000)
            budget.left = left
            with pytest.raises(SchemaProblem) as problem:
                run(broken, budget)
            problems.append(str(problem.value))
        assert problems[0] == problems[1]


def test_large_jobs_leave_this_process_and_a_dead_process_costs_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[int] = []
    run = SchemaJobs.run

    def noted(self: SchemaJobs, job: SchemaJob, budget: Budget) -> Any:
        here.append(job.characters)
        return run(self, job, budget)

    monkeypatch.setattr(SchemaJobs, "run", noted)

    async def go() -> None:
        thread = SchemaThread()
        try:
            small = SchemaSource("AVRO", '"int"')
            assert await thread.run(SchemaJob("canonical", small), Budget()) == '"int"'
            referring = SchemaSource("AVRO", '"int"', (Dependency("r", avro("int").text),))
            for job in (
                SchemaJob(NEW, avro("int")),
                SchemaJob("BACKWARD", small, 1, avro("int")),
                SchemaJob(NEW, referring),
            ):
                await thread.run(job, Budget())
            assert here == [len('"int"')]
            child = thread._process._child
            assert child is not None
            child.kill()
            child.wait()
            with pytest.raises(RegistryError, match="too complex"):
                await thread.run(SchemaJob(NEW, avro("int")), Budget())
            assert await thread.run(SchemaJob(NEW, avro("int")), Budget()) == ""
            assert here == [len('"int"')]
        finally:
            thread.stop()
        assert thread._process._child is None

    asyncio.run(go())


def test_a_large_schema_is_registered_and_compared_over_http(url: str) -> None:
    def send(path: str, source: SchemaSource) -> tuple[int, Any]:
        return call(url, "POST", path, json.dumps({"schema": source.text, "schemaType": source.schema_type}).encode())

    for name, old, new in (("avro", avro("int"), avro("string")), ("json", document("string"), document("integer"))):
        path = f"/subjects/large-{name}/versions"
        assert send(path, old)[0] == 200
        status, answer = send(path, new)
        assert (status, answer["error_code"]) == (409, 409)
        assert send(f"/subjects/large-{name}", old)[0] == 200
