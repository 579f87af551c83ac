"""Audit events into the topic `__ottla_audit`, oldest first, in batches that its leader takes.

A batch that is too large is halved. One event that is refused for what it is, alone in its batch, is logged and dropped:
otherwise it would keep all later events out. Everything else is tried again, and the events wait in their queue.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.broker.own_writes import write_batch
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.records_build import SimpleRecord, build_batch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

log = get_logger(__name__)

TOPIC = "__ottla_audit"
BATCH = 500
BATCH_BYTES = 256 * 1024
_REFUSED_FOR_ITSELF = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)

Event: TypeAlias = dict[str, Any]
"""The facts of an audit event, as JSON writes them."""


class AuditWriter:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._most = BATCH
        self.unwritable = 0
        """Events that no batch could carry."""

    async def flush(self, events: deque[Event]) -> bool:
        """Write the oldest events and take them out of the queue; False when the topic takes nothing at present."""
        records = self._next(events)
        code = await self._write(bytes(build_batch(records)))
        if code is ErrorCode.NONE:
            self._most = min(self._most * 2, BATCH)
        elif code not in _REFUSED_FOR_ITSELF:
            log.warning("audit.not_written", reason=code.name)
            return False
        elif len(records) > 1:
            self._most = len(records) // 2
            return True
        else:
            self.unwritable += 1
            log.error("audit.event_dropped", bytes=len(records[0].value or b""), reason=code.name)
        for _ in records:
            events.popleft()
        return True

    def _next(self, events: deque[Event]) -> list[SimpleRecord]:
        records: list[SimpleRecord] = []
        size = 0
        for event in events:
            value = json.dumps(event).encode()
            size += len(value)
            if records and (len(records) >= self._most or size > BATCH_BYTES):
                break
            records.append(SimpleRecord(event["timestamp_ms"], None, value))
        return records

    async def _write(self, data: bytes) -> ErrorCode:
        if TOPIC not in self._broker.image.topics_by_name:
            await self._create()
        return await write_batch(self._broker, TOPIC, 0, data, acks=1)

    async def _create(self) -> None:
        try:
            request = CreateTopicsRequest(topics=[CreatableTopic(TOPIC, 1, -1)], timeout_ms=10_000)
            await self._broker.controller.submit(request, None)
        except KafkaError as error:
            log.warning("audit.topic_not_created", reason=error.code.name)
