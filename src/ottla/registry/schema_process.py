"""Jobs about large schemas, in a process that may die.

The libraries hold Python's lock in single calls, which stops the registry's loop from another thread too. A pattern with
30,000 classes of characters did so for 0.23 s, a string of 900 KB in a Protobuf option for 0.25 s.
`ottla.system.question_process` has the process.
"""

from __future__ import annotations

from typing import Any

from ottla.registry.compatibility import CompatibilityFinding
from ottla.registry.schema_jobs import SchemaJob, SchemaJobs
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parsed import Incompatibility, SchemaProblem
from ottla.system.question_process import ProcessEnded, QuestionProcess, answer_questions

TIMEOUT_S = 60.0
"""The steps of the budget end a job within seconds; this ends a process that hangs."""


class SchemaProcess(QuestionProcess):
    """Only one thread may call `run`; any thread may close the process."""

    def __init__(self) -> None:
        super().__init__("ottla.registry.schema_process")

    def run(self, job: SchemaJob, budget: Budget) -> str | list[CompatibilityFinding]:
        """As `SchemaJobs.run`. A schema that ends the process, or takes too long, is a SchemaProblem too."""
        try:
            answer = self.ask((job, budget.spent, budget.left), TIMEOUT_S)
        except TimeoutError:
            raise SchemaProblem(f"too complex: the check takes longer than {TIMEOUT_S:.0f} s") from None
        except ProcessEnded:
            raise SchemaProblem("too complex: the check needs too much memory") from None
        if "problem" in answer:
            raise SchemaProblem(answer["problem"])
        budget.spend(answer["spent"])
        if "text" in answer:
            return str(answer["text"])
        return [
            CompatibilityFinding(version, way, Incompatibility(*reason)) for version, way, reason in answer["findings"]
        ]


def _answer(jobs: SchemaJobs, question: tuple[SchemaJob, int, int]) -> dict[str, Any]:
    job, spent, left = question
    budget = Budget(spent + left)
    budget.left = left
    try:
        result = jobs.run(job, budget)
    except SchemaProblem as problem:
        return {"problem": str(problem)}
    except RecursionError:
        return {"problem": "nested too deep"}
    used = budget.spent - spent
    if isinstance(result, str):
        return {"spent": used, "text": result}
    reasons = [(finding.version, finding.direction, _facts(finding.reason)) for finding in result]
    return {"spent": used, "findings": reasons}


def _facts(reason: Incompatibility) -> tuple[str, str, str]:
    return reason.kind, reason.path, reason.message


def main() -> None:
    jobs = SchemaJobs()
    answer_questions(lambda question: _answer(jobs, question))


if __name__ == "__main__":
    main()
