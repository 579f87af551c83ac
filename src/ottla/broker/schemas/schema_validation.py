"""Validation at the log: records of topics with `ottla.schema.validation` are held against their schemas before they
are appended.

Loaded only where a registry is configured. Nothing of it runs on the loop: a worker thread reads a copy of the batches
(`schema_judgement`) while this connection waits. A record that does not match is refused with its whole batch
(INVALID_RECORD, naming each), or put into a quarantine topic first and then left out. In the second case the batch
keeps its range of offsets and sequence numbers, as after compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Answer, Deferred, Resolution
from ottla.broker.schemas.quarantine_rights import quarantine_refusal
from ottla.broker.schemas.schema_judgement import (
    MAX_LOADED,
    CheckedBatch,
    Checks,
    InvalidRecords,
    SchemaKey,
    judge_all,
    unchecked,
)
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.quarantine import quarantine_topic
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.records import Record
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.planes import ProducePlane
    from ottla.env.config.topic import TopicConfig

OFF = "off"
T = TypeVar("T")


class SchemaValidation(Checks, Protocol):
    """The registry's part of it, given by a composition root."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, which a worker thread does."""
        ...

    async def load(self, keys: set[SchemaKey]) -> None:
        """Make them ready (or known to be missing); KafkaError when the registry does not answer."""

    async def divert(self, topic: str, source: TopicPartition, records: list[tuple[Record, str]]) -> None:
        """Write records and what is wrong with each to a quarantine topic; KafkaError when that fails."""

    def close(self) -> None: ...


Find: TypeAlias = "Callable[[RequestContext[ProducePlane], TopicProduceData, int], Partition]"
Proceed = Callable[[Mapping[int, InvalidRecords]], ProduceResponse | Deferred[ProduceResponse] | None]


def validated(
    context: RequestContext[ProducePlane], request: ProduceRequest, find: Find, proceed: Proceed
) -> Answer[ProduceResponse]:
    """The answer of `proceed`, called now when no topic asks for validation, or a coroutine that calls it later."""
    checked = [
        (topic, data)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None and _config(context, topic, data, find) is not None
    ]
    if not checked:
        return proceed({})
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # The receive buffer is not ours any more when this goes on.
                data.records = bytearray(data.records)
    batches = {
        id(data): _batch(find(context, topic, data.index), data.records or bytearray()) for topic, data in checked
    }
    return _later(context, batches, proceed)


def _config(
    context: RequestContext[ProducePlane], topic: TopicProduceData, data: PartitionProduceData, find: Find
) -> TopicConfig | None:
    """The topic's settings when it asks for validation. A partition that is not here gets its error from the append."""
    try:
        config = find(context, topic, data.index).log.config
    except KafkaError:
        return None
    return None if config.ottla_schema_validation == OFF else config


def _batch(partition: Partition, records: bytearray) -> CheckedBatch:
    config = partition.log.config
    return CheckedBatch(
        partition.topic_partition,
        records,
        config.ottla_schema_validation,
        quarantine_topic(partition.topic_partition.topic, config.ottla_schema_quarantine_topic),
        config.ottla_schema_validation_fields,
        config.ottla_schema_validation_context,
        config,
    )


async def _later(
    context: RequestContext[ProducePlane], batches: dict[int, CheckedBatch], proceed: Proceed
) -> Resolution[ProduceResponse]:
    schemas = _schemas(context)
    invalid_records_of = await _judged(schemas, batches)
    failures: dict[str, KafkaError] = {}
    for key, invalid_records in invalid_records_of.items():
        if invalid_records.records and invalid_records.failure is None:
            invalid_records.failure = quarantine_refusal(
                context, invalid_records.partition.topic, invalid_records.quarantine_topic
            )
        if invalid_records.records and invalid_records.failure is None:
            now_ms = context.broker.clock.time_ms()
            await schemas.run(partial(invalid_records.prepare, batches[key], now_ms, context.version))
        if invalid_records.records and invalid_records.failure is None:
            invalid_records.failure = failures.get(invalid_records.quarantine_topic)
        if invalid_records.records and invalid_records.failure is None:
            try:
                await schemas.divert(
                    invalid_records.quarantine_topic, invalid_records.partition, invalid_records.records
                )
            except KafkaError as error:
                invalid_records.failure = failures[invalid_records.quarantine_topic] = error
    answer = proceed(invalid_records_of)
    if isinstance(answer, Deferred):
        done: asyncio.Future[Resolution[ProduceResponse]] = asyncio.get_running_loop().create_future()
        answer.then(partial(_resolve, done))
        try:
            return await done
        except asyncio.CancelledError:
            answer.cancel()
            raise
    return answer


def _resolve(done: asyncio.Future[Resolution[ProduceResponse]], response: Resolution[ProduceResponse]) -> None:
    if not done.done():
        done.set_result(response)


async def _judged(schemas: SchemaValidation, batches: dict[int, CheckedBatch]) -> dict[int, InvalidRecords]:
    """What is wrong with each batch. A registry that does not answer is an error of the batches that need it only."""
    first = await schemas.run(partial(judge_all, schemas, batches))
    if not first.missing:
        return first.invalid_records
    problem = "the request names more schemas than are loaded at once"
    try:
        await schemas.load(set(islice({key: None for keys in first.missing.values() for key in keys}, MAX_LOADED)))
    except KafkaError as error:
        problem = error.message
    second = await schemas.run(partial(judge_all, schemas, {key: batches[key] for key in first.missing}))
    waiting = {key: unchecked(batches[key], problem) for key in second.missing}
    return {**first.invalid_records, **second.invalid_records, **waiting}


def _schemas(context: RequestContext[ProducePlane]) -> SchemaValidation:
    schemas = context.broker.schemas
    if schemas is None:
        raise RuntimeError("validation without a registry")
    return schemas
