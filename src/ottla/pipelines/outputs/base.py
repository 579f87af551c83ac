"""The contract of a table output: executors stage rows, the driver makes all of them visible at once.

1. `prepare` runs on the driver before any task. Wrong options, a missing driver or a different schema are one UserError.
2. `stage` runs in a Python worker, perhaps more than once for a task (retries, speculation). Staged rows are invisible to
   readers, and the name of what is staged holds application, version, task and attempt.
3. `commit` runs on the driver with the messages of the attempts that Spark chose. Rows and marker become visible together. A
   version that is there already changes nothing.
4. `sweep` removes what attempts staged that no commit names: the losers of speculation, and drivers that died.

An output holds options only and opens its connections where it works: Spark pickles it to the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ottla.connect.sinks.base import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """One attempt of Spark at one task of a batch."""

    application: str
    version: int
    task: int
    attempt: int
    """Spark's task attempt id, which no other attempt of the application has."""

    @property
    def staging_name(self) -> str:
        return f"{self.application}-{self.version:012d}-{self.task:05d}-{self.attempt}"


@dataclass(frozen=True, kw_only=True)
class StagedRows(WriterCommitMessage):
    """What one attempt staged. Outputs derive classes that add names of files or staging tables, never rows."""

    rows: int


class TableOutput(Protocol):
    def prepare(self, schema: pa.Schema) -> None:
        """Checks options and schema, and makes what all tasks need. Raises UserError before the first row."""

    def reached(self, application: str) -> int | None:
        """The last committed version of an application."""

    def stage(self, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt) -> StagedRows:
        """Writes one task's rows where no reader sees them, with memory for a few batches at most."""

    def commit(self, staged: Sequence[StagedRows], work: Work) -> bool:
        """Makes the staged rows and the marker of the work visible together. False if the version was there already."""

    def sweep(self, work: Work) -> None:
        """Removes what attempts at this version or an earlier version of the application staged and no commit named."""
