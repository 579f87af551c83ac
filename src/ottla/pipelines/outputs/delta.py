"""Delta tables by delta-rs: tasks write Parquet files into the table's folder, the driver adds them to the Delta log.

A file that the log does not name is invisible to every reader of Delta tables. Files of a batch lie in
`batches/APPLICATION/VERSION/`, so that a sweep lists two folders and never the table. The commit names the attempts that
it took beside the application's transaction; a later sweep keeps their files, whatever became of them since.

An upsert needs the whole table: one task merges its rows with delta-rs, under the same transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from ottla.connect.locations import Location, locate
from ottla.connect.sinks.base import DELETED, Work, of_known_types
from ottla.connect.sinks.delta import DeltaSink, check_kinds
from ottla.model.extras import require
from ottla.model.user_error import UserError
from ottla.pipelines.options import boolean, whole
from ottla.pipelines.outputs.base import StagedRows, TaskAttempt
from ottla.pipelines.outputs.data_files import (
    AttemptFiles,
    DataFile,
    StagedFiles,
    bounded_rows,
    check_repeat,
    folder_name,
    need_one_task,
    plain_line,
    remove_files,
    stored_rows,
    words,
)
from ottla.pipelines.outputs.delta_statistics import statistics
from ottla.pipelines.outputs.evolution import EVOLVE, check_columns

UPSERT_BYTES = 256 * 1024 * 1024
COMMIT_TRIES = 10
VERSION, ATTEMPTS, ROWS = "ottla.version", "ottla.attempts", "ottla.rows"
_LOOK_BACK = 20
"""Commits of others that may lie between two of ours before a sweep leaves the old losers alone."""
_REFUSED = ("delta.columnMapping.mode", "delta.constraints.")


def make(options: Mapping[str, str], *, overwrite: bool) -> DeltaOutput:
    if not options.get("path"):
        raise UserError("the option path is missing: give it the folder of the Delta table")
    return DeltaOutput(
        locate(options["path"]),
        keys=() if overwrite else words(options.get("keys")),
        partition_by=words(options.get("partitionby")),
        overwrite=overwrite,
        upsert_bytes=whole(options, "upsertmaxbytes") or UPSERT_BYTES,
        evolve=boolean(options, EVOLVE, default=False),
    )


class DeltaOutput:
    def __init__(
        self,
        location: Location,
        *,
        keys: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        overwrite: bool = False,
        upsert_bytes: int = UPSERT_BYTES,
        evolve: bool = False,
    ) -> None:
        require("a Delta table", "deltalake")
        self._location = location
        self._keys, self._partition_by, self._overwrite = list(keys), list(partition_by), overwrite
        self._upsert_bytes, self._evolve = upsert_bytes, evolve
        self._rows_schema: pa.Schema = pa.schema([])
        self._schema: pa.Schema = pa.schema([])
        """Types that the table has, or will have, for the columns of the rows."""

    @property
    def merges_in_task(self) -> bool:
        return bool(self._keys)

    def prepare(self, schema: pa.Schema) -> None:
        table = self._table()
        there = pa.schema(table.schema().to_arrow()) if table is not None else None
        self._rows_schema = schema
        self._schema = self._stored_schema(schema, there)
        if table is not None:
            self._partition_by = list(table.metadata().partition_columns)
            _check_features(table, self._location.text)
        missing = [name for name in [*self._partition_by, *self._keys] if name not in self._schema.names]
        if missing:
            raise UserError(
                f"the Delta table {self._location.text} needs the column {missing[0]!r}, which the rows lack"
            )
        if len(self._partition_by) == len(self._schema.names):
            raise UserError(f"the Delta table {self._location.text} needs a column beside those of partition_by")

    def _stored_schema(self, rows: pa.Schema, there: pa.Schema | None) -> pa.Schema:
        coming = of_known_types(rows.empty_table(), there).schema
        if there is not None and not self._overwrite:
            check_kinds(f"the Delta table {self._location.text}", there, coming)
            added = pa.schema([field for field in coming if field.name != DELETED])
            check_columns(f"the Delta table {self._location.text}", there, added, evolve=self._evolve)
        fields = []
        for field in coming:
            index = there.get_field_index(field.name) if there is not None and not self._overwrite else -1
            if field.name != DELETED:
                fields.append(there.field(index) if there is not None and index >= 0 else field.with_nullable(True))
        return pa.schema(fields)

    def reached(self, application: str) -> int | None:
        table = self._table()
        return None if table is None else table.transaction_version(application)

    def stage(self, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt) -> StagedRows:
        if self._keys:
            return self._merge(batches, attempt)
        store, root = self._location.file_system()
        folder = f"{root}/{_batch_folder(attempt.application, attempt.version)}"
        with AttemptFiles(store, root, folder, attempt.name, partition_by=self._partition_by) as files:
            for batch in batches:
                files.write(stored_rows(batch, self._schema))
            actions = tuple(self._action(file, attempt) for file in files.close())
        return StagedFiles(application=attempt.application, attempt=attempt.name, rows=files.rows, files=actions)

    def _action(self, file: DataFile, attempt: TaskAttempt) -> Any:
        from deltalake.transaction import AddAction

        partition = {
            name: _partition_text(value) for name, value in zip(self._partition_by, file.partition, strict=True)
        }
        return AddAction(
            path=f"{_batch_folder(attempt.application, attempt.version)}/{file.path}",
            size=file.size,
            partition_values=partition,
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps({"numRecords": file.rows, **statistics(file.metadata)}),
        )

    def _merge(self, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt) -> StagedRows:
        need_one_task(attempt, self._location.text)
        rows = bounded_rows(batches, self._rows_schema, self._upsert_bytes, self._location.text)
        sink = DeltaSink(
            self._location.uri,
            keys=self._keys,
            partition_by=self._partition_by,
            storage_options=self._location.storage_options(),
        )
        facts = {VERSION: f"{attempt.application} {attempt.version}", ROWS: str(rows.num_rows)}
        if not sink.put(rows, replace(attempt.work, note={**attempt.note, **facts})):
            there = self._commit_of(attempt.application, attempt.version)
            check_repeat(self._location.text, attempt, there.get(ROWS), rows.num_rows)
        return StagedRows(application=attempt.application, attempt=attempt.name, rows=rows.num_rows)

    def commit(self, staged: Sequence[StagedRows], work: Work) -> bool:
        """Another driver's commit in between is looked at again, never overwritten.

        A merge that changed nothing (an empty batch) has made no commit: it gets its marker here.
        """
        if self._keys and not work.is_marked:
            return True
        for _ in range(COMMIT_TRIES):
            table = self._table()
            last = None if table is None else table.transaction_version(work.application)
            if last is not None and last >= work.version:
                return False
            if self._add(table, staged, work):
                return True
        raise UserError(f"the Delta table {self._location.text} was not written: others change it all the time")

    def _add(self, table: Any, staged: Sequence[StagedRows], work: Work) -> bool:
        from deltalake import CommitProperties, Schema, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import create_table_with_add_actions

        actions = [action for rows in staged if isinstance(rows, StagedFiles) for action in rows.files]
        attempts = " ".join(rows.attempt for rows in staged if isinstance(rows, StagedFiles) and rows.files)
        properties = CommitProperties(
            app_transactions=[Transaction(work.application, work.version)] if work.is_marked else None,
            custom_metadata={
                **work.note,
                VERSION: f"{work.application} {work.version}",
                ATTEMPTS: attempts,
                ROWS: str(sum(rows.rows for rows in staged)),
            },
        )
        schema = Schema.from_arrow(self._schema)
        try:
            if table is None:
                create_table_with_add_actions(
                    self._location.uri, schema, actions, mode="error", partition_by=self._partition_by,
                    storage_options=self._location.storage_options(), commit_properties=properties,
                )  # fmt: skip
                return True
            there = pa.schema(table.schema().to_arrow())
            if not self._overwrite:
                check_kinds(f"the Delta table {self._location.text}", there, self._schema)
                if not set(self._schema.names) <= set(there.names):  # columns only; rows come with the next commit
                    write_deltalake(table, self._schema.empty_table(), mode="append", schema_mode="merge")
                schema = table.schema()
            mode = "overwrite" if self._overwrite else "append"
            table.create_write_transaction(actions, mode, schema, self._partition_by, commit_properties=properties)
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as problem:
            if table is None and self._table() is not None:
                return False  # another writer made the table
            raise UserError(
                f"the Delta table {self._location.text} was not written: {plain_line(problem)}"
            ) from problem
        return True

    def sweep(self, work: Work, job: str | None = None) -> None:
        store, root = self._location.file_system()
        last = self.reached(work.application) if work.is_marked or job is not None else work.version
        if job is not None and (last is None or last < work.version):
            remove_files(store, f"{root}/{_batch_folder(work.application, work.version)}", of_job=job)
        kept = None if last is None else self._commit_of(work.application, last).get(ATTEMPTS)
        if last is not None and kept is not None:
            remove_files(store, f"{root}/{_batch_folder(work.application, last)}", keep=str(kept).split())

    def _commit_of(self, application: str, version: int) -> Mapping[str, Any]:
        """What the commit of a version noted; empty if it is too far away."""
        table = self._table()
        for limit in (1, _LOOK_BACK) if table is not None else ():
            for entry in table.history(limit):
                if entry.get(VERSION) == f"{application} {version}":
                    return dict(entry)
        return {}

    def _table(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        uri, options = self._location.uri, self._location.storage_options()
        try:
            return DeltaTable(uri, storage_options=options) if DeltaTable.is_deltatable(uri, options) else None
        except (DeltaError, OSError) as problem:
            raise UserError(f"{self._location.text} cannot be reached: {plain_line(problem)}") from problem


def _batch_folder(application: str, version: int) -> str:
    return f"batches/{folder_name(application)}/{version:012d}"


def _check_features(table: Any, name: str) -> None:
    """Delta features whose rules nobody would check on files that are only added."""
    settings = table.metadata().configuration
    refused = [key for key in settings if key.startswith(_REFUSED) and settings[key] != "none"]
    refused += [
        key
        for field in table.schema().fields
        for key in (field.metadata or {})
        if key.startswith(("delta.generation", "delta.identity", "delta.invariants"))
    ]
    if refused:
        raise UserError(
            f"the Delta table {name} uses {refused[0]}, which this output cannot check: write to a table without"
        )


def _partition_text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return plain.isoformat(sep=" ", timespec="microseconds")
    return value.isoformat() if isinstance(value, date) else str(value)
