"""Schemas ready to check records with: fetched from the registry by id, bounded, never on the loop.

Loaded only with `ottla.schema.registry.url`. Requests to the registry use HTTP.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.broker.schemas.schema_judgement import Limits, NotLoaded, SchemaKey
from ottla.client.errors import RegistryRefused, RegistryUnreachable
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.records import Record
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, SchemaProblem, Validator
from ottla.registry.subjects import DEFAULT_CONTEXT, context_name, context_of, in_context
from ottla.runtime.shared_futures import outcome_of
from ottla.server.checks.check_process import CheckProcess, SchemaText

if TYPE_CHECKING:
    from ottla.client.schema_registry import RegistryClient


log = get_logger(__name__)
_FORGET_MISSING_S = 5.0
"""The time before an id that the registry does not have is requested again."""
_FORGET_SLOW_S = 300.0
"""The time before a schema that took too long for one record is used again."""
_CHECK_THREADS = 2
_LIMITS = Limits()
_THREADS = 4
"""Threads that wait for the registry."""
T = TypeVar("T")
Divert = Callable[[str, TopicPartition, list[tuple[Record, str]]], Awaitable[None]]
"""Writes records, each with its problem, to a quarantine topic."""


class _Loaded(NamedTuple):
    validator: Validator
    text: SchemaText


class RegistrySchemas:
    """ottla.broker.schemas.schema_validation.SchemaValidation over the registry's REST API."""

    def __init__(
        self,
        url: str,
        divert: Divert,
        *,
        max_schemas: int,
        timeout_s: float,
        limits: Limits = _LIMITS,
    ) -> None:
        self.limits = limits
        self._url = url
        self._client: RegistryClient | None = None
        self._divert = divert
        self._max_schemas = max_schemas
        self._timeout_s = timeout_s
        self._ready: OrderedDict[SchemaKey, _Loaded] = OrderedDict()
        self._missing: OrderedDict[SchemaKey, tuple[float, str]] = OrderedDict()
        """Until when a schema counts as missing, and the problem of records that name it."""
        self._loading: dict[SchemaKey, asyncio.Task[None]] = {}
        self._fetches = ThreadPoolExecutor(_THREADS, thread_name_prefix="schemas")
        self._processes: dict[int, CheckProcess] = {}
        """One process for each thread of `_checks`: no thread waits for another thread's costly record."""
        self._checks = ThreadPoolExecutor(_CHECK_THREADS, thread_name_prefix="schema-checks")

    def problem(self, key: SchemaKey, payload: bytes) -> str | None:
        loaded = self._ready.get(key)
        if loaded is not None:
            return self._timed(key, loaded, payload)
        until = self._missing.get(key)
        if until is not None and time.monotonic() < until[0]:
            return until[1]
        raise NotLoaded(key)

    def _timed(self, key: SchemaKey, loaded: _Loaded, payload: bytes) -> str | None:
        """If one small record takes longer than a whole batch may take, its schema is out of use for a while. If a
        large record takes too long, only its process is killed. The schema stays in use, because records of any topic
        may name it.
        """
        slow = f"its schema {key.id} takes longer than {self.limits.batch_ms} ms to check a record"
        limit_s = self.limits.batch_ms / 1000
        if len(payload) > loaded.validator.quick_bytes:
            own = self._processes.setdefault(threading.get_ident(), CheckProcess())
            try:
                return own.check(loaded.text, payload, limit_s)
            except TimeoutError:
                return slow
        began = time.monotonic()
        problem = loaded.validator(payload)
        if time.monotonic() - began <= limit_s:
            return problem
        log.warning("schema.timed_out", schema=key.id, context=key.context, limit_ms=self.limits.batch_ms)
        self._ready.pop(key, None)
        self._forget(key, slow, _FORGET_SLOW_S)
        return slow

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._checks, work)

    async def load(self, keys: set[SchemaKey]) -> None:
        for key in keys:
            if key not in self._loading:
                task = self._loading[key] = asyncio.ensure_future(self._load(key))
                task.add_done_callback(lambda _, key=key: self._loading.pop(key, None))  # type: ignore[misc]  # bound now
        waiting = [outcome_of(self._loading[key]) for key in keys]
        try:
            await asyncio.wait_for(asyncio.gather(*waiting), self._timeout_s)
        except (TimeoutError, ConnectionError) as error:
            # Retriable for every client: the record may be all right.
            text = f"the registry returned no schema: {str(error) or 'it took too long'}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from error

    async def _load(self, key: SchemaKey) -> None:
        try:
            loaded = await asyncio.get_running_loop().run_in_executor(self._fetches, self._fetch, key)
        except RegistryRefused as error:
            self._forget(key, f"its schema {key.id} is not in the registry: {error.message}")
        except SchemaProblem as error:
            self._forget(key, f"its schema {key.id} cannot be used: {error}")
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - a supervisor: whatever a foreign schema does, it is its records' error
            log.warning("schema.rejected", schema=key.id, context=key.context, reason=repr(error)[:500])
            self._forget(key, f"its schema {key.id} cannot be used: {type(error).__name__}")
        else:
            self._missing.pop(key, None)
            self._ready[key] = loaded
            if len(self._ready) > self._max_schemas:
                self._ready.popitem(last=False)

    def _forget(self, key: SchemaKey, problem: str, seconds: float = _FORGET_MISSING_S) -> None:
        self._missing[key] = (time.monotonic() + seconds, problem)
        if len(self._missing) > self._max_schemas:
            self._missing.popitem(last=False)

    def _call(self, *path: str, query: dict[str, str] | None = None) -> Any:
        """HTTP is imported with the first schema that is requested, so a node that checks nothing does not load it."""
        from ottla.client.schema_registry import RegistryClient

        if self._client is None:
            self._client = RegistryClient(self._url, timeout_s=self._timeout_s)
        try:
            return self._client.call("GET", *path, query=query)
        except RegistryUnreachable as error:
            raise ConnectionError(str(error)) from error

    def _fetch(self, key: SchemaKey) -> _Loaded:
        """In a thread: the schema, those that it refers to, and the parsing of all."""
        context = context_name(key.context) if key.context else DEFAULT_CONTEXT
        where = () if context == DEFAULT_CONTEXT else ("contexts", context)
        schema = self._call(*where, "schemas", "ids" if isinstance(key.id, int) else "guids", str(key.id))
        dependencies: dict[str, Dependency] = {}
        self._references(schema, context, dependencies, 0)
        text = SchemaText(schema.get("schemaType", "AVRO"), schema["schema"], tuple(dependencies.values()))
        return _Loaded(parse_schema(*text).validator(), text)

    def _references(self, schema: dict[str, Any], context: str, into: dict[str, Dependency], depth: int) -> None:
        """A reference names a subject in the context of its schema, unless the reference names a different context."""
        if depth > 50:
            raise SchemaProblem("the references go too deep")
        for reference in schema.get("references", []):
            if reference["name"] not in into:
                subject, version = in_context(context, reference["subject"]), str(reference["version"])
                target = self._call("subjects", subject, "versions", version, query={"deleted": "true"})
                self._references(target, context_of(subject), into, depth + 1)
                into[reference["name"]] = Dependency(reference["name"], target["schema"])

    async def divert(self, topic: str, source: TopicPartition, records: list[tuple[Record, str]]) -> None:
        await self._divert(topic, source, records)

    def close(self) -> None:
        for task in list(self._loading.values()):
            task.cancel()
        for threads in (self._fetches, self._checks):
            threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._processes.values()):
            process.close()
