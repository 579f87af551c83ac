"""The contract of a table output: executors stage rows, the driver makes all of them visible at once.

1. `prepare` runs on the driver before any task. Wrong options, a missing driver or a different schema are one UserError.
   What it stores in the output travels to the tasks, and to the driver's process that commits.
2. `stage` runs in a Python worker, perhaps more than once for a task (retries, speculation). Staged rows are invisible to
   readers, and the name of what is staged holds application, version, task and attempt.
3. `commit` runs on the driver with the messages of the attempts that Spark chose. Rows and marker become visible together. A
   version that is there already changes nothing.
4. `sweep` removes what attempts staged that no commit names: the losers of speculation, and drivers that died.
5. A work that is not marked is a single write: the table keeps no version of the work. Its driver sweeps after the commit.

An output holds values only and opens its connections where it works: Spark pickles it to the workers. `prepare`,
`commit` and `sweep` run in different processes of the driver. Each output has a function
`make(options, *, overwrite) -> TableOutput`; Spark hands over the names of options in lower case. `overwrite` (Spark's
mode of that name, a step's output mode `complete`) replaces all rows of the table in one commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ottla.connect.sinks.base import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """One attempt of Spark at one task of a batch."""

    application: str
    version: int
    job: str
    """A random word of the write: a driver that starts again counts its attempts from 0 again."""
    task: int
    attempt: int
    """Spark's task attempt id, which no other attempt of this driver has."""
    note: Mapping[str, str] = field(default_factory=dict)
    """That of the work, for outputs whose task commits by itself."""
    is_marked: bool = True
    """The same of the work."""

    @property
    def name(self) -> str:
        """Unique among the attempts at one version of the application."""
        return f"{self.task:05d}-{self.attempt}-{self.job}"

    @property
    def work(self) -> Work:
        return Work(application=self.application, version=self.version, note=self.note, is_marked=self.is_marked)


@dataclass(frozen=True, kw_only=True)
class StagedRows(WriterCommitMessage):
    """What one attempt staged. Outputs derive classes that add names of files or staging tables, never rows."""

    application: str
    attempt: str
    """The attempt's name."""
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

    def sweep(self, work: Work, job: str | None = None) -> None:
        """Removes what attempts at the last committed version staged and its commit does not name.

        An attempt at a version that is not committed may belong to a driver that still commits: it stays, until some driver
        has committed that version. Only a write that failed names its `job`, whose attempts at this version go too.
        A single write is swept after its commit, by the object that committed, or with its `job` after a failure.
        """
