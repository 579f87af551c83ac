"""Validation at the log: records of topics with `ottla.schema.validation` are held against their schemas before they
are appended.

Loaded only where a registry is configured. Schemas that are ready are asked on the loop; one that is not yet is fetched
elsewhere (`SchemaValidation.load`) while this connection waits, on a copy of what it sent. A record that does not match
is refused with its whole batch (INVALID_RECORD, naming each), or put into a quarantine topic first and then left out:
the batch keeps its range of offsets and sequence numbers, as after compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.log.validation import ValidatedBatches
from ottla.log.validation_records import RecordError, RecordValidationError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.generated.produce_request import ProduceRequest, TopicProduceData
from ottla.protocol.records import Record, assemble_batch, batch_payload, iterate_records, parse_header, record_spans
from ottla.replication.partition import Partition

OFF = "off"
QUARANTINE = "quarantine"
_MAX_NAMED = 100
"""Records that an answer names; the others of a batch are counted only."""
_KEY_HEADER, _VALUE_HEADER = "__key_schema_id", "__value_schema_id"

SchemaKey = int | str
"""A schema's id, or its guid where a record carries that in a header."""


class NotLoaded(Exception):
    """A schema that is not ready yet."""

    def __init__(self, key: SchemaKey) -> None:
        super().__init__(key)
        self.key = key


class SchemaValidation(Protocol):
    """The registry's part of it, given by a composition root."""

    def problem(self, key: SchemaKey, payload: bytes) -> str | None:
        """What is wrong with `payload` under that schema; NotLoaded when it is not ready."""

    async def load(self, keys: set[SchemaKey]) -> None:
        """Make them ready (or known to be missing); KafkaError when the registry does not answer."""

    async def divert(self, topic: str, source: TopicPartition, records: list[tuple[Record, str]]) -> None:
        """Write records and what is wrong with each to a quarantine topic; KafkaError when that fails."""

    def close(self) -> None: ...


class Misfits:
    """The records of one batch that do not match."""

    __slots__ = ("mode", "problems", "quarantine_topic", "records")

    def __init__(self, mode: str, quarantine_topic: str) -> None:
        self.mode = mode
        self.quarantine_topic = quarantine_topic
        self.problems: dict[int, str] = {}
        self.records: list[tuple[Record, str]] = []

    def add(self, index: int, record: Record, problem: str) -> None:
        self.problems[index] = problem
        if self.mode == QUARANTINE:
            self.records.append((record, problem))

    def refuse(self) -> None:
        """RecordValidationError unless they were put aside."""
        if self.mode == QUARANTINE:
            return
        named = [RecordError(index, text) for index, text in list(self.problems.items())[:_MAX_NAMED]]
        text = f"{len(self.problems)} of the batch's records do not match their schema"
        raise RecordValidationError(ErrorCode.INVALID_RECORD, text, named)

    def taken_out(self, validated: ValidatedBatches) -> ValidatedBatches:
        """The batch without them; offsets and sequence numbers of the others stay."""
        header = parse_header(validated.buf, 0)
        payload = batch_payload(validated.buf, 0, header)
        spans = record_spans(payload, header.record_count)
        kept = [span for index, span in enumerate(spans) if index not in self.problems]
        body = b"".join(bytes(payload[span[0] : span[1]]) for span in kept)
        fresh = assemble_batch(
            body, len(kept), base_offset=header.base_offset, last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp, max_timestamp=header.max_timestamp,
            attributes=header.attributes, leader_epoch=header.leader_epoch, producer_id=header.producer_id,
            producer_epoch=header.producer_epoch, base_sequence=header.base_sequence,
        )  # fmt: skip
        return ValidatedBatches(fresh, [(0, parse_header(fresh, 0))], validated.log_append_time_ms)


class Judgement(NamedTuple):
    misfits: dict[TopicPartition, Misfits]
    missing: set[SchemaKey]
    checked: bool
    """Whether any topic of the request asks for validation at all."""


Find = Callable[[RequestContext, TopicProduceData, int], Partition]
Proceed = Callable[[Mapping[TopicPartition, Misfits]], Any]


def validated(context: RequestContext, request: ProduceRequest, find: Find, proceed: Proceed) -> Any:
    """The answer of `proceed`, called now, or a coroutine that calls it when schemas and quarantine are done."""
    judged = judge(context, request, find)
    if not judged.checked:
        return proceed({})
    if not judged.missing and all(misfits.mode != QUARANTINE for misfits in judged.misfits.values()):
        return proceed(judged.misfits)
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # The receive buffer is not ours any more when this goes on.
                data.records = bytearray(data.records)
    return _later(context, request, find, proceed)


async def _later(context: RequestContext, request: ProduceRequest, find: Find, proceed: Proceed) -> Any:
    schemas = _schemas(context)
    judged = judge(context, request, find)
    if judged.missing:
        await schemas.load(judged.missing)
        judged = judge(context, request, find)
        if judged.missing:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the cache of schemas is too small for one request")
    for source, misfits in judged.misfits.items():
        if misfits.records:
            await schemas.divert(misfits.quarantine_topic, source, misfits.records)
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


def judge(context: RequestContext, request: ProduceRequest, find: Find) -> Judgement:
    """Every record of topics that ask for it. What cannot be read is left to the log, which has Kafka's words for it."""
    schemas = _schemas(context)
    found = Judgement({}, set(), checked=False)
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                partition = find(context, topic, data.index)
                config = partition.log.config
                if config.ottla_schema_validation == OFF or data.records is None:
                    continue
                found = found._replace(checked=True)
                quarantine = config.ottla_schema_quarantine_topic or f"{partition.topic_partition.topic}.quarantine"
                misfits = Misfits(config.ottla_schema_validation, quarantine)
                fields = config.ottla_schema_validation_fields
                for index, record in enumerate(iterate_records(data.records)):
                    problem = _problem(schemas, record, fields, found.missing)
                    if problem is not None:
                        misfits.add(index, record, problem)
            except (KafkaError, ValueError, IndexError):
                continue
            if misfits.problems:
                found.misfits[partition.topic_partition] = misfits
    return found


def _problem(schemas: SchemaValidation, record: Record, fields: tuple[str, ...], missing: set[SchemaKey]) -> str | None:
    for field in fields:
        data, header = (record.key, _KEY_HEADER) if field == "key" else (record.value, _VALUE_HEADER)
        if data is None:
            continue  # a tombstone, or a record without a key, has no schema
        try:
            key, start = _schema_key(data, record, header)
            problem = schemas.problem(key, data[start:])
        except NotLoaded as needed:
            missing.add(needed.key)
            continue
        except ValueError as error:
            problem = str(error)
        if problem is not None:
            return f"{field}: {problem}"
    return None


def _schema_key(data: bytes, record: Record, header: str) -> tuple[SchemaKey, int]:
    """Confluent's wire format: a 0 and four bytes of id before the data, or a 1 and sixteen of guid in a header."""
    for name, value in record.headers:
        if name == header and value is not None and len(value) == 17 and value[0] == 1:
            text = value[1:].hex()
            return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}", 0
    if len(data) < 5 or data[0] != 0:
        raise ValueError("it does not begin with a schema's id")
    return int.from_bytes(data[1:5], "big"), 5


def _schemas(context: RequestContext) -> SchemaValidation:
    schemas = context.broker.schemas
    if schemas is None:
        raise RuntimeError("validation without a registry")
    return schemas
