"""Validation at the log: records of topics with `ottla.schema.validation` are held against their schemas before they
are appended.

Loaded only where a registry is configured. Nothing of it runs on the loop: a worker thread reads a copy of the batches
(`schema_judgement`) while this connection waits. A record that does not match is refused with its whole batch
(INVALID_RECORD, naming each), or put into a quarantine topic first and then left out: the batch keeps its range of
offsets and sequence numbers, as after compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.quarantine_rights import quarantine_refusal
from ottla.broker.schema_judgement import CheckedBatch, Checks, Misfits, SchemaKey, judge
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.quarantine import quarantine_topic
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import Record
from ottla.replication.partition import Partition

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


class Judgement(NamedTuple):
    misfits: dict[int, Misfits]
    """By the id() of a partition's data in the request: a request may name a partition twice."""
    missing: set[SchemaKey]


Find = Callable[[RequestContext, TopicProduceData, int], Partition]
Proceed = Callable[[Mapping[int, Misfits]], Any]


def validated(context: RequestContext, request: ProduceRequest, find: Find, proceed: Proceed) -> Any:
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
    batches = {id(data): _batch(find(context, topic, data.index), data.records) for topic, data in checked}
    return _later(context, batches, proceed)


def _config(context: RequestContext, topic: TopicProduceData, data: PartitionProduceData, find: Find) -> Any:
    """The topic's settings when it asks for validation. A partition that is not here gets its error from the append."""
    try:
        config = find(context, topic, data.index).log.config
    except KafkaError:
        return None
    return None if config.ottla_schema_validation == OFF else config


def _batch(partition: Partition, records: Any) -> CheckedBatch:
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


async def _later(context: RequestContext, batches: dict[int, CheckedBatch], proceed: Proceed) -> Any:
    schemas = _schemas(context)
    judged = await schemas.run(partial(_judge_all, schemas, batches))
    if judged.missing:
        await schemas.load(judged.missing)
        judged = await schemas.run(partial(_judge_all, schemas, batches))
        if judged.missing:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the cache of schemas is too small for one request")
    for key, misfits in judged.misfits.items():
        if misfits.records and misfits.failure is None:
            misfits.failure = quarantine_refusal(context, misfits.partition.topic, misfits.quarantine_topic)
        if misfits.records and misfits.failure is None:
            now_ms = context.broker.clock.time_ms()
            await schemas.run(partial(misfits.prepare, batches[key], now_ms, context.version))
            if misfits.failure is None:
                await schemas.divert(misfits.quarantine_topic, misfits.partition, misfits.records)
    answer = proceed(judged.misfits)
    if isinstance(answer, Deferred):
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.then(partial(_resolve, done))
        try:
            return await done
        except asyncio.CancelledError:
            answer.cancel()
            raise
    return await answer if isinstance(answer, Coroutine) else answer


def _resolve(done: asyncio.Future[Any], response: Any) -> None:
    if not done.done():
        done.set_result(response)


def _judge_all(checks: Checks, batches: dict[int, CheckedBatch]) -> Judgement:
    """In a worker thread."""
    judged = Judgement({}, set())
    for key, batch in batches.items():
        misfits = judge(checks, batch, judged.missing)
        if misfits is not None:
            judged.misfits[key] = misfits
    return judged


def _schemas(context: RequestContext) -> SchemaValidation:
    schemas = context.broker.schemas
    if schemas is None:
        raise RuntimeError("validation without a registry")
    return schemas
