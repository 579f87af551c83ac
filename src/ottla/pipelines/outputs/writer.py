"""One batch writer over every table output, and a thin stream writer for append mode.

Spark builds a writer on the driver, pickles it to the tasks, and pickles it again to the process that commits. Rows go from
the tasks to the output; the driver gets the names of what the tasks staged.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.connect.sinks.base import Work
from ottla.model.user_error import UserError
from ottla.pipelines.outputs.base import StagedRows, TableOutput, TaskAttempt

_NOTE = "note."
_WRITER_OPTIONS = ("txnappid", "txnversion", "checkpointlocation")


class TableWriter(DataSourceArrowWriter):
    """One batch: committed under `txnAppId` and `txnVersion`, or under an id of its own."""

    def __init__(self, output: TableOutput, schema: pa.Schema, work: Work | None) -> None:
        self._output = output
        self._job = uuid.uuid4().hex[:8]
        self._is_named = work is not None
        single = Work(application=f"job-{uuid.uuid4().hex}", version=0, is_marked=False)
        self._work = single if work is None else work
        output.prepare(schema)
        self._is_done = False
        if self._is_named:
            self._look_back()

    def _look_back(self) -> None:
        output = self._output
        last = output.reached(self._work.application)
        # A task that merges compares its rows with those of the commit that is there.
        merges = getattr(output, "merges_in_task", False)
        self._is_done = last is not None and last >= self._work.version and not merges
        output.sweep(self._work)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        attempt = _attempt(self._work, self._job)
        if self._is_done:
            for _ in iterator:  # a query with state stores its state as its rows are read
                pass
            return StagedRows(application=attempt.application, attempt=attempt.name, rows=0)
        return self._output.stage(iterator, attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._is_done:
            self._output.commit(_staged(messages), self._work)
        if not self._is_named:  # no later batch of this application sweeps
            with suppress(UserError):  # the rows are committed: a second try would write them twice
                self._output.sweep(self._work)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if _before_commit(messages):
            self._output.sweep(self._work, self._job)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format(...)`: appended rows only, as Spark allows Python sinks no other mode.

    Spark gives `commit` no query id. Tasks read the id from their local properties, and their messages carry it.
    """

    def __init__(self, output: TableOutput, schema: pa.Schema, application: str | None) -> None:
        self._output = output
        self._application = application
        self._job = uuid.uuid4().hex[:8]
        output.prepare(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if query is None or batch is None:
            raise UserError("Spark did not say which query and batch this task writes: write in foreachBatch instead")
        work = Work(application=self._application or query, version=int(batch))
        return self._output.stage(iterator, _attempt(work, self._job))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        staged = _staged(messages)
        for application in {rows.application for rows in staged}:  # one, or none if the batch had no task
            work = Work(application=application, version=batchId, note={"ottla.batch": str(batchId)})
            self._output.sweep(work)
            self._output.commit(staged, work)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        for application in {rows.application for rows in _staged(messages)} if _before_commit(messages) else ():
            self._output.sweep(Work(application=application, version=batchId), self._job)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The types of the batches that tasks get; every column may be null, as in Spark's own sinks."""
    from pyspark.errors import PySparkException

    from ottla.pipelines.arrow_values import arrow_type

    try:
        return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in schema])
    except PySparkException as problem:
        raise UserError(f"a column cannot be written: {str(problem).splitlines()[0]}") from problem


def work_of(options: Mapping[str, str]) -> Work | None:
    """What `txnAppId`, `txnVersion` and `note.*` name; Spark hands option names over in lower case."""
    application, version = options.get("txnappid"), options.get("txnversion")
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise UserError("txnAppId and txnVersion go together: give both options or neither")
    if not version.isdecimal():
        raise UserError(f"the option txnVersion is a number from 0, not {version!r}")
    note = {name.removeprefix(_NOTE): value for name, value in options.items() if name.startswith(_NOTE)}
    return Work(application=application, version=int(version), note=note)


def output_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the table, without those of the writer."""
    return {
        name: value for name, value in options.items() if name not in _WRITER_OPTIONS and not name.startswith(_NOTE)
    }


def _attempt(work: Work, job: str) -> TaskAttempt:
    context = TaskContext.get()
    return TaskAttempt(
        application=work.application,
        version=work.version,
        job=job,
        task=context.partitionId() if context else 0,
        attempt=context.taskAttemptId() if context else 0,
        note=work.note,
        is_marked=work.is_marked,
    )


def _staged(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows)]


def _before_commit(messages: list[WriterCommitMessage | None]) -> bool:
    """Whether a task failed. If every task has its message, the commit was tried and its outcome may be unknown. The store
    may apply the commit later, so the files that the commit names must stay.
    """
    return any(message is None for message in messages)
