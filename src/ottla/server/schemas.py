"""Schemas ready to check records with: fetched from the registry by id, bounded, never on the loop.

Loaded only where `ottla.schema.registry.url` is set. The registry is spoken to by HTTP, the quarantine over the wire.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ottla.broker.schema_validation import NotLoaded, SchemaKey
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.records import Record
from ottla.registry.errors import RegistryError
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, SchemaProblem

if TYPE_CHECKING:
    from ottla.registry.client import RegistryClient

log = get_logger(__name__)
_FORGET_MISSING_S = 5.0
"""An id that the registry does not have is asked for again after this time."""
_DIVERT_TIMEOUT_S = 30.0
_THREADS = 4
"""For what waits for the registry, and for what waits for the quarantine topic. Not the loop's pool: disk syncs use it."""
Check = Callable[[bytes], str | None]


class RegistrySchemas:
    """ottla.broker.schema_validation.SchemaValidation over the registry's REST API."""

    def __init__(self, url: str, bootstrap_servers: Callable[[], str], *, max_schemas: int, timeout_s: float) -> None:
        self._url = url
        self._client: RegistryClient | None = None
        self._bootstrap_servers = bootstrap_servers
        self._max_schemas = max_schemas
        self._timeout_s = timeout_s
        self._ready: OrderedDict[SchemaKey, Check] = OrderedDict()
        self._missing: OrderedDict[SchemaKey, tuple[float, str]] = OrderedDict()
        self._loading: dict[SchemaKey, asyncio.Task[None]] = {}
        self._producer: Any = None
        self._fetches = ThreadPoolExecutor(_THREADS, thread_name_prefix="schemas")
        self._diverts = ThreadPoolExecutor(_THREADS, thread_name_prefix="quarantine")

    def problem(self, key: SchemaKey, payload: bytes) -> str | None:
        check = self._ready.get(key)
        if check is not None:
            return check(payload)
        since = self._missing.get(key)
        if since is not None and time.monotonic() - since[0] < _FORGET_MISSING_S:
            return since[1]
        raise NotLoaded(key)

    async def load(self, keys: set[SchemaKey]) -> None:
        for key in keys:
            if key not in self._loading:
                task = self._loading[key] = asyncio.ensure_future(self._load(key))
                task.add_done_callback(lambda _, key=key: self._loading.pop(key, None))  # type: ignore[misc]  # bound now
        waiting = [asyncio.shield(self._loading[key]) for key in keys]
        try:
            await asyncio.wait_for(asyncio.gather(*waiting), self._timeout_s)
        except (TimeoutError, ConnectionError) as error:
            # Retriable for every client: the record may be all right.
            text = f"no schema from the registry: {str(error) or 'it took too long'}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from error

    async def _load(self, key: SchemaKey) -> None:
        try:
            check = await asyncio.get_running_loop().run_in_executor(self._fetches, self._fetch, key)
        except RegistryError as error:
            self._forget(key, f"its schema {key} is not in the registry: {error.message}")
        except SchemaProblem as error:
            self._forget(key, f"its schema {key} cannot be used: {error}")
        else:
            self._missing.pop(key, None)
            self._ready[key] = check
            if len(self._ready) > self._max_schemas:
                self._ready.popitem(last=False)

    def _forget(self, key: SchemaKey, problem: str) -> None:
        self._missing[key] = (time.monotonic(), problem)
        if len(self._missing) > self._max_schemas:
            self._missing.popitem(last=False)

    def _call(self, *path: str, query: dict[str, str] | None = None) -> Any:
        """HTTP is loaded with the first schema that is asked for: a node that checks nothing does not carry it."""
        from ottla.registry.client import RegistryClient, Unreachable

        if self._client is None:
            self._client = RegistryClient(self._url, timeout_s=self._timeout_s)
        try:
            return self._client.call("GET", *path, query=query)
        except Unreachable as error:
            raise ConnectionError(str(error)) from error

    def _fetch(self, key: SchemaKey) -> Check:
        """In a thread: the schema, those that it refers to, and the parsing of all."""
        kind = "ids" if isinstance(key, int) else "guids"
        found = self._call("schemas", kind, str(key))
        dependencies: dict[str, Dependency] = {}
        self._references(found, dependencies, 0)
        schema = parse_schema(found.get("schemaType", "AVRO"), found["schema"], list(dependencies.values()))
        check: Check = schema.validator()
        return check

    def _references(self, found: dict[str, Any], into: dict[str, Dependency], depth: int) -> None:
        if depth > 50:
            raise SchemaProblem("the references go too deep")
        for reference in found.get("references", []):
            if reference["name"] not in into:
                version = str(reference["version"])
                target = self._call("subjects", reference["subject"], "versions", version, query={"deleted": "true"})
                self._references(target, into, depth + 1)
                into[reference["name"]] = Dependency(reference["name"], target["schema"])

    async def divert(self, topic: str, source: TopicPartition, records: list[tuple[Record, str]]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._diverts, self._divert, topic, source, records)
        except (OSError, RuntimeError, BufferError) as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the quarantine topic {topic}: {error}") from error

    def _divert(self, topic: str, source: TopicPartition, records: list[tuple[Record, str]]) -> None:
        """In a thread, over the wire: the topic's leader may be another node. Made by auto-creation where it is on."""
        from confluent_kafka import KafkaException, Producer

        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self._bootstrap_servers(), "client.id": "ottla-quarantine", "acks": "all",
                 "enable.idempotence": True, "linger.ms": 0, "log_level": 2,
                 "delivery.timeout.ms": int(_DIVERT_TIMEOUT_S * 1000)}
            )  # fmt: skip
        failed: list[str] = []
        for record, problem in records:
            headers = [
                *record.headers, ("ottla.quarantine.topic", source.topic.encode()),
                ("ottla.quarantine.partition", str(source.partition).encode()),
                ("ottla.quarantine.reason", problem.encode()),
            ]  # fmt: skip
            try:
                self._producer.produce(
                    topic, key=record.key, value=record.value, headers=headers, timestamp=max(record.timestamp, 0),
                    on_delivery=lambda error, _: failed.append(error.str()) if error is not None else None,
                )  # fmt: skip
            except (KafkaException, BufferError) as error:
                failed.append(str(error))
            self._producer.poll(0)
        left = self._producer.flush(_DIVERT_TIMEOUT_S)
        if failed or left:
            log.warning("quarantine.failed", topic=topic, failed=len(failed) + left, reason=failed[:1])
            raise RuntimeError(failed[0] if failed else "not written in time")

    def close(self) -> None:
        for task in list(self._loading.values()):
            task.cancel()
        self._producer = None
        for threads in (self._fetches, self._diverts):
            threads.shutdown(wait=False, cancel_futures=True)
