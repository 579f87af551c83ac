"""Records that are costly to check against their schema, checked in a process of their own.

fastavro, json and jsonschema-rs hold Python's lock while they work: in a thread, one large record stops the loop for
seconds (`ottla.system.question_process` has the process).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, Validator
from ottla.system.question_process import ProcessEnded, QuestionProcess, answer_questions


class SchemaText(NamedTuple):
    schema_type: str
    schema: str
    dependencies: tuple[Dependency, ...]


class CheckProcess(QuestionProcess):
    """Only one thread may call `check`; any thread may close the process."""

    def __init__(self) -> None:
        super().__init__("ottla.server.checks.check_process")

    def check(self, schema: SchemaText, payload: bytes, timeout_s: float) -> str | None:
        """What is wrong with the payload. Raises TimeoutError if the check does not finish in time."""
        try:
            problem: str | None = self.ask((schema, payload), timeout_s)
        except ProcessEnded:
            return "the process that checked the record has ended"
        return problem


@lru_cache(maxsize=100)
def _validator(schema: SchemaText) -> Validator:
    return parse_schema(schema.schema_type, schema.schema, schema.dependencies).validator()


def _problem(question: tuple[SchemaText, bytes]) -> str | None:
    schema, payload = question
    try:
        return _validator(schema)(payload)
    except Exception as error:  # noqa: BLE001 - a supervisor: whatever a foreign record does, it is its own error
        return f"the record cannot be checked: {type(error).__name__}"


if __name__ == "__main__":
    answer_questions(_problem)
