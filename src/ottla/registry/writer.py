"""Carry out decisions: decide, append, read the record back, and only then answer.

One decision at a time. A record that lost a race (`log.py`) is void: the decision is made again on the current state.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from ottla.registry.decisions import DecisionStep
from ottla.registry.errors import operation_timeout, schema_too_large, store_error
from ottla.registry.log import SchemasLog
from ottla.registry.queries import Queries
from ottla.registry.records import Record
from ottla.registry.schema_work import Unprepared
from ottla.registry.settings import RegistrySettings
from ottla.registry.topic import TopicWriter

MAX_RACES = 50
Decision = Callable[[Queries], DecisionStep]


class RegistryWriter:
    def __init__(self, settings: RegistrySettings, schemas: SchemasLog, queries: Queries, topic: TopicWriter) -> None:
        self._settings = settings
        self._log = schemas
        self._queries = queries
        self._topic = topic
        self._lock = asyncio.Lock()

    async def carry_out(self, decision: Decision) -> Any:
        """The decision's answer, when all that it wrote is in the log and read back."""
        while True:
            try:
                async with self._lock:
                    return await self._decided(decision)
            except Unprepared as missing:
                # Nobody waits for the lock meanwhile. What changes in the state until then is asked for again.
                await missing.work.do(missing.jobs)

    async def _decided(self, decision: Decision) -> Any:
        races = 0
        while races < MAX_RACES:
            attempt = copy.copy(decision)
            step = attempt(self._queries)
            if step.record is None:
                return step.answer
            if await self._append(step.record):
                decision = attempt
            else:
                races += 1
        raise operation_timeout(f"Another writer was quicker {MAX_RACES} times")

    async def repair(self) -> None:
        """Write what is true over void records, so that compaction cannot keep them."""
        async with self._lock:
            for key in list(self._log.voided):
                if key in self._log.voided:
                    await self._append(self._log.state.record_for(key))

    async def _append(self, record: Record) -> bool:
        """Whether it counts."""
        size = len(record[0]) + len(record[1] or b"")
        if size > 2 * self._settings.schema_max_bytes + 65_536:
            raise schema_too_large(size, self._settings.schema_max_bytes)
        seen = self._log.seen
        try:
            offset = await asyncio.to_thread(self._topic.append, record, seen)
        except KafkaException as error:
            if error.args[0].name() == "MSG_SIZE_TOO_LARGE":
                raise schema_too_large(size, self._settings.schema_max_bytes) from error
            raise store_error(f"Register operation failed: {error.args[0].str()}") from error
        await self.read_up_to(offset + 1)
        return self._log.outcome(offset, seen)

    async def read_up_to(self, position: int) -> None:
        """Wait for the reader; 50002 when it does not get there."""
        reached = asyncio.Event()
        self._log.when(position, reached.set)
        try:
            await asyncio.wait_for(reached.wait(), self._settings.timeout_s)
        except TimeoutError as error:
            raise operation_timeout(f"The topic was not read up to offset {position} in time") from error
