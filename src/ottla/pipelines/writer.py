"""Batch and streaming writes behind Spark's DataSource API.

A streaming write is exactly once unless `exactlyOnce` is false. Each task is one transaction, named by the query's id
and the task's partition, with the micro-batch as its version (ottla.connect.exactly_once). A batch write is one
transaction per task, named by the job; with `txnAppId` and `txnVersion` (Delta's names) a repeated job writes nothing.

A repeated batch must be split into the same tasks. Every task of a batch that may be repeated fences its earlier attempts
and compares its rows with its marker, an empty task too. The driver looks for markers of tasks that the batch does not have.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.connect.exactly_once import ExactlyOnce, Fenced
from ottla.connect.markers import markers_of
from ottla.connect.sender import Outgoing, Sender, WrittenRows
from ottla.model.user_error import UserError
from ottla.pipelines.content import IDENTITY, Content
from ottla.pipelines.options import boolean, client_options, whole
from ottla.pipelines.unfinished import UNFINISHED, expired_batch, stored_unfinished_batch

HELD_BYTES = 32 * 1024 * 1024
"""Rows that a task gathers before its transaction opens: most tasks are evaluated completely by then."""
LONG_TIMEOUT_MS = 900_000
"""Of the transaction of a task that has more rows: what brokers accept unless `transaction.max.timeout.ms` differs."""
LARGEST_RECORD_BYTES = 104_857_600
"""The largest request that a broker takes by default (socket.request.max.bytes). The topic's max.message.bytes decides, not
the producer's max.request.size, unless the option kafka.max.request.size is given."""
_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("integer",),
    "headers": ("array",),
    IDENTITY: ("string", "binary"),
}
_BYTES = {"key", "value", IDENTITY}
_OTHERWISE = ": the query or its parallelism changed in the middle of a batch. Start it as it was once more, or with a new checkpoint"
_EXPIRED = (
    "the markers of batch {version} of {application} are gone: the batch was planned longer ago than the brokers keep them "
    "(offsets.retention.minutes), so its rows may be there. Set the option onMarkersLost to write, which may write them "
    "twice, or start with a new checkpoint"
)
_runs: dict[str, tuple[str, int]] = {}
"""Application -> its newest run, and the first batch of that run that this process has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    client: Mapping[str, str]
    topic: str | None
    exactly_once: bool
    application: str | None
    version: int
    job: str
    expired_version: int | None = None
    """A batch that was planned so long ago that its markers may have expired."""
    new_version: bool = False
    """The caller knows that this version was never tried."""


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
            raise UserError(f"the column {name} is {columns[name]}; a topic allows {' or '.join(allowed)}")
    version = whole({"txnversion": str(int(options["txnversion"]) + 1)}, "txnversion") if "txnversion" in options else 1
    exactly_once = boolean(options, "exactlyonce", default=True)
    lost = options.get("onmarkerslost", "fail").lower()
    if lost not in {"fail", "write"}:
        raise UserError(f"onMarkersLost is fail or write, not {lost!r}")
    unfinished = options.get(UNFINISHED)
    if unfinished is None:
        unfinished = stored_unfinished_batch(options.get("checkpointlocation", ""))
    return WriteOptions(
        client={"max.request.size": str(LARGEST_RECORD_BYTES), **client},
        topic=topic,
        exactly_once=exactly_once,
        application=options.get("txnappid"),
        version=(version or 1) - 1,
        job=uuid.uuid4().hex,
        expired_version=expired_batch(client, unfinished) if exactly_once and lost == "fail" else None,
        new_version=boolean(options, "newversion", default=False),
    )


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    rows: int
    size: int
    skipped: bool
    application: str = ""
    task: int = 0
    attempt: int = 0
    """Spark's task attempt id. Only equal numbers of a batch's ids and tasks show that no task ran twice."""
    repeatable: bool = False
    """The version may have been tried before."""


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        context = TaskContext.get()
        is_retry = context is not None and context.attemptNumber() > 0
        repeatable = options.application is not None and (is_retry or not options.new_version)
        application = options.application or f"job-{options.job}"
        return write_task(options, iterator, application, options.version, repeatable=repeatable)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        check_tasks(self._options, messages, self._options.version)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if context is None or query is None or batch is None:
            raise UserError("Spark did not say which query and batch this task writes; set exactlyOnce to false")
        application, run = self._options.application or query, context.getLocalProperty("spark.jobGroup.id")
        repeatable = context.attemptNumber() > 0 or not is_later_in_run(application, run, int(batch))
        return write_task(self._options, iterator, application, int(batch), repeatable=repeatable)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        check_tasks(self._options, messages, batchId)


def is_later_in_run(application: str, run: str | None, batch: int) -> bool:
    """Whether this process has seen an earlier batch of the same run. Only the first batch of a run can be a repeated one."""
    if run is None:
        return False
    if _runs.get(application, ("", 0))[0] != run:
        _runs[application] = run, batch
    return _runs[application][1] < batch


def write_task(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], application: str, version: int, *, repeatable: bool = True
) -> WriterCommitMessage:
    """One task's rows. A task without rows writes no marker."""
    held, has_more = _held(batches)
    context = TaskContext.get()
    task, task_attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    commit = functools.partial(
        TaskCommit, application=application, task=task, attempt=task_attempt, repeatable=repeatable
    )
    if not held and not (options.exactly_once and repeatable):
        return commit(0, 0, skipped=False)
    content = Content()
    records = outgoing(chain(held, batches), options.topic, content)
    if not options.exactly_once:
        sender = Sender(options.client)
        written = sender.send(records)
        sender.flush()
        return commit(*written, skipped=False)
    timeout_ms = LONG_TIMEOUT_MS if has_more else None
    with ExactlyOnce(options.client, application, task, version, options.topic, timeout_ms=timeout_ms) as attempt:
        done = attempt.done()
        if done is None and not held:
            return commit(0, 0, skipped=False)
        if done is None:
            if options.expired_version == version:
                raise UserError(_EXPIRED.format(version=version, application=application))
            try:
                outcome = attempt.write(records, content.identities)
            except Fenced:
                # A twin (speculative execution, a retry of a task that was thought dead) does the same work. Failing here
                # would have Spark begin a third attempt, which fences the twin in turn: its end is awaited, for as long as
                # its transaction can last. After that the twin is gone, and a third attempt is right.
                by_twin = attempt.done_by_another(attempt.timeout_s)
                if by_twin is None:
                    raise
                for _ in records:  # a query with state stores its state as its rows are read
                    pass
                return commit(by_twin.rows, by_twin.size, skipped=True)
            if isinstance(outcome, WrittenRows):
                return commit(*outcome, skipped=False)
            done = outcome
    for _ in records:
        pass
    if content.differs_from(done):
        raise UserError(
            f"batch {version} of {application} was written by task {task} with {done.rows} rows of {done.size} bytes, and "
            f"is now {content}{_OTHERWISE}"
        )
    return commit(done.rows, done.size, skipped=True)


def check_tasks(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], version: int) -> None:
    """On the driver, after all tasks: the first run of this version must not have had more tasks.

    A stage that Spark submits again counts the attempts of its tasks from 0 again. A task that was empty then has not looked
    for the marker of an attempt before, so the driver looks, unless the ids show that each task ran once.
    """
    commits = [message for message in messages if isinstance(message, TaskCommit)]
    unchecked = (
        {commit.task for commit in commits if not commit.repeatable and not commit.rows}
        if _ran_again(commits)
        else set()
    )
    application = next(
        (commit.application for commit in commits if commit.repeatable or commit.task in unchecked), None
    )
    if application is None or not options.exactly_once:
        return
    for task, marker in sorted(markers_of(options.client, application).items()):
        if marker.version >= version and (task >= len(messages) or task in unchecked):
            now = "no rows" if task in unchecked else f"{len(messages)} tasks only"
            raise UserError(
                f"batch {version} of {application} was written by task {task} with {marker.rows} rows, and now has "
                f"{now}{_OTHERWISE}"
            )


def _ran_again(commits: Sequence[TaskCommit]) -> bool:
    """Whether a task may have had an attempt before. Spark numbers the attempts of all queries of a program in one sequence."""
    attempts = [commit.attempt for commit in commits]
    return len(attempts) > 0 and max(attempts) - min(attempts) >= len(attempts)


def _held(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """The rows of a task up to HELD_BYTES, and whether there may be more."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
            if size >= HELD_BYTES:
                return held, True
    return held, False


def outgoing(batches: Iterator[pa.RecordBatch], topic: str | None, content: Content) -> Iterator[Outgoing]:
    for batch in batches:
        columns: dict[str, list[Any]] = {}
        for name in ("key", "value", "topic", "partition", "headers", IDENTITY):
            index = batch.schema.get_field_index(name)
            if index >= 0:
                columns[name] = _bytes(batch.column(index)) if name in _BYTES else batch.column(index).to_pylist()
        rows = batch.num_rows
        nothing: list[Any] = [None] * rows
        keys, values = columns.get("key", nothing), columns["value"]
        content.add(keys, values, columns.get(IDENTITY))
        topics = [topic] * rows if topic is not None else columns["topic"]
        partitions, headers = columns.get("partition", nothing), columns.get("headers", nothing)
        for name, key, value, partition, row_headers in zip(topics, keys, values, partitions, headers, strict=True):
            if name is None:
                raise UserError("the topic of a row is null: set the option topic or fill the column")
            pairs = [(header["key"], header["value"]) for header in row_headers] if row_headers else None
            yield Outgoing(name, key, value, pairs, -1 if partition is None else partition)


def _bytes(column: pa.Array) -> list[bytes | None]:
    return column.cast(pa.binary()).to_pylist() if not pa.types.is_binary(column.type) else column.to_pylist()  # type: ignore[no-any-return]
