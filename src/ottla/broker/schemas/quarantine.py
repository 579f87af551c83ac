"""Records that do not match their schema, written to the quarantine topic before the produce is answered.

Nothing here waits in a thread or logs in as a client: batches go the way of `own_writes`. So many writes and bytes wait at
one time, and each for so long; a produce that finds no place is refused with an error that clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.own_writes import write_batch
from ottla.broker.schemas.schema_judgement import record_bytes
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.records import Record, SimpleRecord, build_batch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

log = get_logger(__name__)

BATCH_BYTES = 512 * 1024
MAX_WRITES = 64
MAX_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 10.0
_PAUSE_S = 0.05


class Quarantine:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._writes = 0
        self._bytes = 0

    async def write(self, topic: str, source: TopicPartition, records: list[tuple[Record, str]]) -> None:
        """KafkaError REQUEST_TIMED_OUT when the records are not all written: the client sends its batch again."""
        size = sum(record_bytes(record) for record, _ in records)
        if self._writes >= MAX_WRITES or (self._writes and self._bytes + size > MAX_BYTES):
            raise _failed(topic, "too many records wait for it")
        self._writes += 1
        self._bytes += size
        code = ErrorCode.REQUEST_TIMED_OUT
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for data in _batches(source, records):
                    code = await self._write(topic, source.partition, data)
        except TimeoutError:
            log.warning("quarantine.failed", topic=topic, records=len(records), reason=code.name)
            raise _failed(topic, f"not written in {TIMEOUT_S:.0f} s: {code.message}") from None
        finally:
            self._writes -= 1
            self._bytes -= size

    async def _write(self, topic: str, source_partition: int, data: bytes) -> ErrorCode:
        """Until it is written; KafkaError when trying again is of no use."""
        if topic in INTERNAL_TOPICS:
            raise _failed(topic, "it is an internal topic")
        while True:
            image = self._broker.image.topics_by_name.get(topic)
            if image is None or not image.partitions:
                code = await self._create(topic)
            else:
                partition = source_partition % len(image.partitions)
                code = await write_batch(self._broker, topic, partition, data, acks=-1)
            if code is ErrorCode.NONE and image is not None:
                return code
            if code is not ErrorCode.NONE and not code.retriable:
                log.warning("quarantine.failed", topic=topic, reason=code.name)
                raise _failed(topic, code.message)
            await asyncio.sleep(_PAUSE_S)

    async def _create(self, topic: str) -> ErrorCode:
        """Made by auto-creation where it is on."""
        if not self._broker.config.auto_create_topics_enable:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        request = CreateTopicsRequest(topics=[CreatableTopic(topic, -1, -1)], timeout_ms=int(TIMEOUT_S * 1000))
        try:
            response = await self._broker.controller.submit(request, None)
        except KafkaError as error:
            return error.code
        code = ErrorCode(response.topics[0].error_code)
        return ErrorCode.NONE if code is ErrorCode.TOPIC_ALREADY_EXISTS else code


def _batches(source: TopicPartition, records: list[tuple[Record, str]]) -> Iterator[bytes]:
    batch: list[SimpleRecord] = []
    size = 0
    for record, problem in records:
        headers = (
            *record.headers,
            ("ottla.quarantine.topic", source.topic.encode()),
            ("ottla.quarantine.partition", str(source.partition).encode()),
            ("ottla.quarantine.reason", problem.encode()),
        )
        more = len(record.key or b"") + len(record.value or b"") + sum(len(k) + len(v or b"") for k, v in headers)
        if batch and size + more > BATCH_BYTES:
            yield bytes(build_batch(batch))
            batch, size = [], 0
        batch.append(SimpleRecord(max(record.timestamp, 0), record.key, record.value, headers))
        size += more
    if batch:
        yield bytes(build_batch(batch))


def _failed(topic: str, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the quarantine topic {topic}: {reason}")
