"""Jobs about schemas: texts as input, a text or findings as result, no state of the registry. Each keeps to its budget."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ottla.registry.compatibility import CompatibilityFinding, against
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, ParsedSchema, SchemaProblem

MAX_PARSED = 1000
MAX_PARSED_STEPS = 5_000_000
"""Of all schemas that are kept parsed: their memory goes with it."""
NEW = "new"
"""The form of the job that checks what only a new schema must keep."""


class SchemaSource(NamedTuple):
    """A schema as text, with the text of all that it refers to."""

    schema_type: str
    text: str
    dependencies: tuple[Dependency, ...] = ()


class SchemaJob(NamedTuple):
    """`form` of the schema as text, or, with `other`, the findings against that version at the level `form`."""

    form: str
    source: SchemaSource
    version: int = 0
    other: SchemaSource | None = None

    @property
    def characters(self) -> int:
        """Of all texts of the job."""
        sources = [self.source] if self.other is None else [self.source, self.other]
        return sum(len(source.text) + sum(len(other.schema) for other in source.dependencies) for source in sources)


class SchemaJobs:
    """Runs jobs, and keeps parsed schemas for the next job."""

    def __init__(self) -> None:
        self._parsed: OrderedDict[SchemaSource, tuple[ParsedSchema, int]] = OrderedDict()
        self._kept_steps = 0

    def run(self, job: SchemaJob, budget: Budget) -> str | list[CompatibilityFinding]:
        """Raises SchemaProblem if a schema is invalid or needs too many steps."""
        schema = self._parse(job.source, budget)
        if job.other is not None:
            try:
                other = self._parse(job.other, budget)
            except SchemaProblem as problem:
                raise SchemaProblem(f"version {job.version} cannot be compared: {problem}") from problem
            return against(job.form, schema, job.version, other, budget.part())
        if job.form == NEW:
            schema.check_new()
            return ""
        if job.form == "canonical":
            return schema.canonical
        return schema.normalized() if job.form == "normalized" else schema.serialized()

    def _parse(self, source: SchemaSource, budget: Budget) -> ParsedSchema:
        """A schema that is kept costs what it cost before: the verdict does not depend on what others have asked."""
        kept_schema = self._parsed.get(source)
        if kept_schema is not None:
            self._parsed.move_to_end(source)
            budget.spend(kept_schema[1])
            return kept_schema[0]
        part = budget.part()
        schema = parse_schema(*source, part)
        self._parsed[source] = (schema, part.spent)
        self._kept_steps += part.spent
        while len(self._parsed) > MAX_PARSED or (self._kept_steps > MAX_PARSED_STEPS and len(self._parsed) > 1):
            self._kept_steps -= self._parsed.popitem(last=False)[1][1]
        return schema
