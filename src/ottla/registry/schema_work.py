"""Schemas are parsed, printed and compared in a thread of their own, never on the loop that answers.

A request asks its `SchemaWork`. If a result is missing, `SchemaWork` raises `Unprepared`, the thread runs the job (`schema_jobs.py`),
and the request asks again. Each job ends within the steps of its budget. Jobs of several requests take turns, so that a
large comparison does not block the others. The thread hands large jobs to a process (`schema_process.py`), because a
library that holds Python's lock stops the loop from a thread too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ottla.registry.compatibility import CompatibilityFinding
from ottla.registry.errors import RegistryError, invalid_schema
from ottla.registry.records import SchemaValue
from ottla.registry.schema_jobs import NEW, SchemaJob, SchemaJobs, SchemaSource
from ottla.registry.schema_process import SchemaProcess
from ottla.registry.schemas.budget import MAX_REQUEST_STEPS, Budget
from ottla.registry.schemas.parsed import SchemaProblem

MAX_WAITING = 500
"""Requests that wait for the thread; the registry refuses further requests with status 429."""
MAX_WAITING_OF_A_CLIENT = 200
_AT_ONCE = 10
"""Versions that are looked up and compared before the request asks again."""
SMALL_CHARACTERS = 16_384
"""Jobs with more text go to a process: the longest call of a library grows with the text, to 20 ms for this length."""
_Answer = TypeVar("_Answer")


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
        self._jobs = SchemaJobs()
        self._process = SchemaProcess()
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
        self._process.close()

    # In the thread

    def _run(self, job: SchemaJob, budget: Budget) -> str | list[CompatibilityFinding]:
        if job.characters <= SMALL_CHARACTERS:
            return self._jobs.run(job, budget)
        return self._process.run(job, budget)


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
        self.text(source, NEW)

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
