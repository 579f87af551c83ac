"""One instance put together: the topic read to its end, an election or none, and then questions and writes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaException

from ottla.env.logging import get_logger
from ottla.registry.catalogue import Catalogue
from ottla.registry.election import WriterElection, writer_id
from ottla.registry.errors import RegistryError
from ottla.registry.log import Message, SchemasLog
from ottla.registry.peers import RegistryPeer, RegistryPeers
from ottla.registry.queries import Queries
from ottla.registry.schema_work import SchemaThread, SchemaWork
from ottla.registry.settings import RegistrySettings, RegistryStartError
from ottla.registry.state import RegistryState
from ottla.registry.topic import TopicReader, TopicWriter, end_offset, ensure_topic
from ottla.registry.writer import RegistryWriter
from ottla.runtime.shared_futures import outcome_of

log = get_logger(__name__)

FORWARD_THREADS = 8
"""For requests that wait for the writer. Not the loop's pool: logins, the search for a new writer and taking over use it."""


class Registry:
    def __init__(self, settings: RegistrySettings, url: str) -> None:
        self.settings = settings
        self.url = url
        self.state = RegistryState()
        self.log = SchemasLog(self.state)
        self.schemas = SchemaThread()
        self.queries = Queries(self.state, Catalogue(self.state))
        self._topic = TopicWriter(settings)
        self.writer = RegistryWriter(settings, self.log, self.queries, self._topic)
        self.is_writer = False
        self._reader: TopicReader | None = None
        self._election: WriterElection | None = None
        self.peers = RegistryPeers.of(settings)
        self._writer: RegistryPeer | None = None
        self._search: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.forwards = ThreadPoolExecutor(FORWARD_THREADS, thread_name_prefix="forward")

    def work(self, client: str) -> SchemaWork:
        """For what one request of this client asks of schemas."""
        return SchemaWork(self.schemas, client)

    async def start(self) -> None:
        """Ready to answer: what was in the topic has been read."""
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(ensure_topic, self.settings)
        try:
            end = await asyncio.to_thread(end_offset, self.settings)
        except KafkaException as error:
            raise RegistryStartError(f"the topic {self.settings.topic} has no end: {error.args[0].str()}") from error

        def hand_over(messages: list[Message], reached: int | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: a stop overtook the reader
                loop.call_soon_threadsafe(self._on_messages, messages, reached)

        self._reader = TopicReader(self.settings, hand_over)
        # What is loaded lives as long as the instance: the collector need not walk it while it grows, nor later.
        gc.disable()
        try:
            self._reader.start()
            await self._read_up_to(end)
        finally:
            gc.enable()
            gc.collect()
            gc.freeze()
        if self.settings.alone:
            self.is_writer = True
            self._repair_if_needed()
        else:
            self._election = WriterElection(
                self.settings,
                self.peers.client_id(self.url),
                lambda won: loop.call_soon_threadsafe(self._on_election, won),
            )
            self._election.start()
        log.info("registry.started", url=self.url, subjects=len(self.state.subjects), topic=self.settings.topic)

    async def _read_up_to(self, end: int) -> None:
        reached = asyncio.Event()
        self.log.when(end, reached.set)
        try:
            await asyncio.wait_for(reached.wait(), self.settings.start_timeout_s)
        except TimeoutError as error:
            raise RegistryStartError(
                f"the topic {self.settings.topic} was read to {self.log.position} of {end} in time"
            ) from error

    def _on_messages(self, messages: list[Message], end: int | None) -> None:
        self.log.apply(messages, end)
        self._repair_if_needed()

    def _repair_if_needed(self) -> None:
        if self.log.voided and self.is_writer:
            self._spawn(self._repair())

    async def _repair(self) -> None:
        try:
            await self.writer.repair()
        except RegistryError as error:
            log.warning("record.unrepaired", reason=error.message)

    # The election

    def _on_election(self, won: bool) -> None:  # noqa: FBT001 - a callback's only fact
        if won:
            self._spawn(self._take_over())
        else:
            self.is_writer = False
        self._writer = None

    async def _take_over(self) -> None:
        """A new writer first reads what its predecessor wrote."""
        try:
            await self.writer.read_up_to(await asyncio.to_thread(end_offset, self.settings))
        except (KafkaException, RegistryError) as error:
            log.warning("writer.not_read", reason=str(error))
        self.is_writer = True
        log.info("writer.elected", url=self.url)
        self._repair_if_needed()

    async def find_writer(self, *, again: bool = False) -> RegistryPeer | None:
        """The elected writer, and whether its address is to be believed."""
        if self._writer is None or again:
            if self._search is None:
                self._search = asyncio.ensure_future(self._find_writer())
                self._search.add_done_callback(lambda _: setattr(self, "_search", None))
            await outcome_of(self._search)
        return self._writer

    async def _find_writer(self) -> None:
        """One search for all requests that wait: each takes a client of its own and a thread that logins need too."""
        peer_id = await asyncio.to_thread(writer_id, self.settings)
        self._writer = None if peer_id is None else self.peers.read(peer_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        self.is_writer = False
        for task in list(self._tasks):
            task.cancel()
        for part in (self._election, self._reader):
            if part is not None:
                await asyncio.to_thread(part.stop)
        await asyncio.to_thread(self._topic.close)
        self.forwards.shutdown(wait=False, cancel_futures=True)
        self.schemas.stop()
