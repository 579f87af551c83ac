"""Batch and streaming writes behind Spark's DataSource API.

A streaming write is exactly once unless `exactlyOnce` is false. Each task is one transaction, named by the query's id
and the task's partition, with the micro-batch as its version (ottla.connect.exactly_once). A batch write is one
transaction per task, named by the job; with `txnAppId` and `txnVersion` (Delta's names) a repeated job writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.connect.exactly_once import ExactlyOnce, Fenced
from ottla.connect.sender import Outgoing, Sender, WrittenRows
from ottla.model.user_error import UserError
from ottla.pipelines.options import boolean, client_options, whole

TWIN_S = 300.0
LARGEST_RECORD_BYTES = 104_857_600
"""The largest request that a broker takes by default (socket.request.max.bytes). The topic's max.message.bytes decides, not
the producer's max.request.size, unless the option kafka.max.request.size is given."""
_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("integer",),
    "headers": ("array",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    client: Mapping[str, str]
    topic: str | None
    exactly_once: bool
    application: str | None
    version: int
    job: str


def write_options(spark_options: Mapping[str, str], schema: StructType) -> WriteOptions:
    """Checked on the driver, before any task runs."""
    options = {name.lower(): value for name, value in spark_options.items()}
    client = client_options(options)
    if not client.get("bootstrap.servers"):
        raise UserError("the option kafka.bootstrap.servers is missing: give it HOST:PORT of a broker")
    columns = {field.name: field.dataType.typeName() for field in schema.fields}
    topic = options.get("topic")
    if topic is None and "topic" not in columns:
        raise UserError("say where to write: the option topic, or a column named topic")
    if "value" not in columns:
        raise UserError(f"a column named value is needed, of type string or binary; there are: {', '.join(columns)}")
    for name, allowed in _TYPES.items():
        if name in columns and columns[name] not in allowed:
            raise UserError(f"the column {name} is {columns[name]}; a topic takes {' or '.join(allowed)}")
    version = whole({"txnversion": str(int(options["txnversion"]) + 1)}, "txnversion") if "txnversion" in options else 1
    return WriteOptions(
        client={"max.request.size": str(LARGEST_RECORD_BYTES), **client},
        topic=topic,
        exactly_once=boolean(options, "exactlyonce", default=True),
        application=options.get("txnappid"),
        version=(version or 1) - 1,
        job=uuid.uuid4().hex,
    )


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    rows: int
    size: int
    skipped: bool


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        return write_task(options, iterator, options.application or f"job-{options.job}", options.version)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if query is None or batch is None:
            raise UserError("Spark did not say which query and batch this task writes; set exactlyOnce to false")
        return write_task(self._options, iterator, self._options.application or query, int(batch))


def write_task(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], application: str, version: int
) -> WriterCommitMessage:
    """One task's rows; an empty task has nothing to mark."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return TaskCommit(0, 0, skipped=False)
    records = outgoing(chain([first], batches), options.topic)
    if not options.exactly_once:
        sender = Sender(options.client)
        written = sender.send(records)
        sender.flush()
        return TaskCommit(*written, skipped=False)
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    with ExactlyOnce(options.client, application, task, version, options.topic) as attempt:
        done = attempt.done()
        if done is None:
            try:
                return TaskCommit(*attempt.write(records), skipped=False)
            except Fenced:
                # A twin (speculative execution, a retry of a task that was thought dead) does the same work. Failing here
                # would have Spark begin a third attempt, which fences the twin in turn: its end is awaited.
                by_twin = attempt.done_by_another(TWIN_S)
                if by_twin is None:
                    raise
                return TaskCommit(*by_twin, skipped=True)
    again = WrittenRows(
        *map(sum, zip(*((1, len(record.key or b"") + len(record.value or b"")) for record in records), strict=True))
    )
    if again != done:
        raise UserError(
            f"batch {version} of {application} was written by task {task} with {done.rows} rows of {done.size} bytes, and "
            f"is now {again.rows} rows of {again.size} bytes: the query or its parallelism changed in the middle of a "
            "batch. Start it as it was once more, or with a new checkpoint"
        )
    return TaskCommit(*done, skipped=True)


def outgoing(batches: Iterator[pa.RecordBatch], topic: str | None) -> Iterator[Outgoing]:
    for batch in batches:
        columns: dict[str, list[Any]] = {}
        for name in ("key", "value", "topic", "partition", "headers"):
            index = batch.schema.get_field_index(name)
            if index >= 0:
                columns[name] = (
                    _bytes(batch.column(index)) if name in {"key", "value"} else batch.column(index).to_pylist()
                )
        rows = batch.num_rows
        nothing: list[Any] = [None] * rows
        keys, values = columns.get("key", nothing), columns["value"]
        topics = [topic] * rows if topic is not None else columns["topic"]
        partitions, headers = columns.get("partition", nothing), columns.get("headers", nothing)
        for name, key, value, partition, row_headers in zip(topics, keys, values, partitions, headers, strict=True):
            if name is None:
                raise UserError("the topic of a row is null: set the option topic or fill the column")
            pairs = [(header["key"], header["value"]) for header in row_headers] if row_headers else None
            yield Outgoing(name, key, value, pairs, -1 if partition is None else partition)


def _bytes(column: pa.Array) -> list[bytes | None]:
    return column.cast(pa.binary()).to_pylist() if not pa.types.is_binary(column.type) else column.to_pylist()  # type: ignore[no-any-return]
