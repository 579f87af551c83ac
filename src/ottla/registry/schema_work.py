"""Schemas are parsed, printed and compared in a thread of their own, never on the loop that answers.

A job has texts as input and a text or findings as result; it uses no state of the registry. A request asks its
`SchemaWork`. If a result is missing, `SchemaWork` raises `Unprepared`, the thread runs the job, and the request asks
again. Each job ends within the steps of its budget. Jobs of several requests take turns, so that a large comparison does
not block the others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from ottla.registry.compatibility import CompatibilityFinding, against
from ottla.registry.errors import RegistryError, invalid_schema
from ottla.registry.records import SchemaValue
from ottla.registry.schemas.budget import MAX_REQUEST_STEPS, Budget
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, ParsedSchema, SchemaProblem

MAX_PARSED = 1000
MAX_PARSED_STEPS = 5_000_000
"""Of all schemas that are kept parsed: their memory goes with it."""
MAX_WAITING = 500
"""Requests that wait for the thread; the registry refuses further requests with status 429."""
MAX_WAITING_OF_A_CLIENT = 200
_AT_ONCE = 10
"""Versions that are looked up and compared before the request asks again."""
_NEW = "new"
"""The form of the job that checks what only a new schema must keep."""
_Answer = TypeVar("_Answer")


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


class Unprepared(Exception):
    """Jobs that must be done before the request can be answered."""

    def __init__(self, work: SchemaWork, jobs: Sequence[SchemaJob]) -> None:
        super().__init__(f"{len(jobs)} jobs")
        self.work = work
        self.jobs = jobs


class _Client:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0


class SchemaThread:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="schemas")
        self._parsed: OrderedDict[SchemaSource, tuple[ParsedSchema, int]] = OrderedDict()
        self._kept_steps = 0
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._clients: dict[str, _Client] = {}

    async def run(self, job: SchemaJob, budget: Budget, client: str = "") -> str | list[CompatibilityFinding]:
        """Raises RegistryError 42201 with the reason if a schema is invalid or needs too many steps.

        Clients take turns: a job waits for at most one job of each other client, however many jobs those have.
        """
        own = self._clients.get(client) or _Client()
        if self._waiting >= MAX_WAITING or own.waiting >= MAX_WAITING_OF_A_CLIENT:
            raise RegistryError(429, "Too many schemas are being checked. Try again later.")
        self._clients[client] = own
        self._waiting += 1
        own.waiting += 1
        try:
            async with own.turn, self._turn:
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, job, budget)
        except SchemaProblem as problem:
            raise invalid_schema(str(problem), job.source.schema_type) from problem
        except RecursionError as error:
            raise invalid_schema("nested too deep", job.source.schema_type) from error
        finally:
            self._waiting -= 1
            own.waiting -= 1
            if not own.waiting:
                del self._clients[client]

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # In the thread

    def _run(self, job: SchemaJob, budget: Budget) -> str | list[CompatibilityFinding]:
        schema = self._parse(job.source, budget)
        if job.other is not None:
            try:
                other = self._parse(job.other, budget)
            except SchemaProblem as problem:
                raise SchemaProblem(f"version {job.version} cannot be compared: {problem}") from problem
            return against(job.form, schema, job.version, other, budget.part())
        if job.form == _NEW:
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


class SchemaWork:
    """What one request wants to know of schemas. Its steps are limited as a whole."""

    def __init__(self, thread: SchemaThread, client: str = "") -> None:
        self._thread = thread
        self._client = client
        self._budget = Budget(MAX_REQUEST_STEPS)
        self._done: dict[SchemaJob, str | list[CompatibilityFinding]] = {}
        self._earlier: dict[int, tuple[SchemaValue, SchemaSource]] = {}

    def text(self, source: SchemaSource, form: str = "canonical") -> str:
        """The schema in the form `canonical`, `normalized` or `serialized`; Unprepared when it is not known yet."""
        job = SchemaJob(form, source)
        if job not in self._done:
            raise Unprepared(self, [job])
        return str(self._done[job])

    def check_new(self, source: SchemaSource) -> None:
        """RegistryError, after Unprepared, for what is refused at registration only."""
        self.text(source, _NEW)

    def findings(
        self,
        level: str,
        source: SchemaSource,
        earlier: Sequence[SchemaValue],
        stored: Callable[[SchemaValue], SchemaSource],
    ) -> list[CompatibilityFinding]:
        """`earlier` in order of version. All findings of the newest version that has any. What an earlier version refers
        to is `stored`, looked up once a request and for a few versions a turn of the loop."""
        missing: list[SchemaJob] = []
        for value in reversed(earlier):
            other = self._earlier.get(id(value))
            if other is None:
                other = self._earlier[id(value)] = (value, stored(value))
            job = SchemaJob(level, source, value.version, other[1])
            findings = self._done.get(job)
            if findings is None:
                missing.append(job)
                if len(missing) == _AT_ONCE:
                    break
            elif findings and not missing:
                return list(findings)  # type: ignore[arg-type]  # a job with another schema has findings
        if missing:
            raise Unprepared(self, missing)
        return []

    async def do(self, jobs: Sequence[SchemaJob]) -> None:
        for job in jobs:
            findings = self._done[job] = await self._thread.run(job, self._budget, self._client)
            if job.other is not None and findings:
                return

    async def answer(self, ask: Callable[[], _Answer]) -> _Answer:
        """What `ask` returns, once all that it asks for has been done."""
        while True:
            try:
                return ask()
            except Unprepared as missing:
                await self.do(missing.jobs)
