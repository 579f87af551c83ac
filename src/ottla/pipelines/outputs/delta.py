"""Delta tables by delta-rs: tasks write Parquet files into the table's folder, the driver adds them to the Delta log.

A file that the log does not name is invisible to every reader of Delta tables. Files of a batch lie in
`batches/APPLICATION/VERSION/`, so that a sweep lists two folders and never the table. The commit names the attempts that
it took beside the application's transaction; a later sweep keeps their files, whatever became of them since.

An upsert needs the whole table: one task merges its rows with delta-rs, under the same transaction.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from ottla.connect.locations import Location, locate
from ottla.connect.sinks.base import DELETED, Work, need_extra, of_known_types
from ottla.connect.sinks.delta import DeltaSink, check_kinds
from ottla.model.user_error import UserError
from ottla.pipelines.options import whole
from ottla.pipelines.outputs.base import StagedRows, TaskAttempt
from ottla.pipelines.outputs.data_files import AttemptFiles, DataFile, StagedFiles, stored_rows

UPSERT_BYTES = 256 * 1024 * 1024
COMMIT_TRIES = 10
VERSION, ATTEMPTS = "ottla.version", "ottla.attempts"
_LOOK_BACK = 20
"""Commits of others that may lie between two of ours before a sweep leaves the old losers alone."""
_STATS_COLUMNS = 32
_STATS_TEXT = 32
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
    ) -> None:
        need_extra("deltalake")
        self._location = location
        self._keys, self._partition_by, self._overwrite = list(keys), list(partition_by), overwrite
        self._upsert_bytes = upsert_bytes
        self._rows_schema: pa.Schema = pa.schema([])
        self._schema: pa.Schema = pa.schema([])
        """Types that the table has, or will have, for the columns of the rows."""

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
            check_kinds(self._location.text, there, coming)
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
        files = AttemptFiles(store, folder, attempt.name, partition_by=self._partition_by)
        try:
            for batch in batches:
                files.write(stored_rows(batch, self._schema))
            actions = tuple(self._action(file, attempt) for file in files.close())
        except OSError as problem:
            files.abandon()
            raise UserError(f"the Delta table {self._location.text} was not written: {_line(problem)}") from problem
        except BaseException:
            files.abandon()
            raise
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
        if attempt.task > 0:
            raise UserError(
                f"rows for the keys of {self._location.text} come in several tasks: call coalesce(1) before the write, and "
                "give a new txnVersion"
            )
        rows = self._bounded(batches)
        sink = DeltaSink(
            self._location.uri,
            keys=self._keys,
            partition_by=self._partition_by,
            storage_options=self._location.storage_options(),
        )
        sink.put(rows, attempt.work)
        return StagedRows(application=attempt.application, attempt=attempt.name, rows=rows.num_rows)

    def _bounded(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        kept, size = [], 0
        for batch in batches:
            size += batch.nbytes
            if size > self._upsert_bytes:
                raise UserError(
                    f"an upsert into {self._location.text} has more than {self._upsert_bytes:,} bytes in one batch: read less "
                    "in a batch (maxOffsetsPerTrigger), or raise the option upsertMaxBytes and the memory of Python workers"
                )
            kept.append(batch)
        return pa.Table.from_batches(kept) if kept else self._rows_schema.empty_table()

    def commit(self, staged: Sequence[StagedRows], work: Work) -> bool:
        """Another driver's commit in between is looked at again, never overwritten."""
        for _ in range(COMMIT_TRIES):
            table = self._table()
            last = None if table is None else table.transaction_version(work.application)
            if last is not None and last >= work.version:
                return False
            if self._keys:
                raise UserError(f"the task that merges into {self._location.text} left no marker: run the batch again")
            if self._add(table, staged, work):
                return True
        raise UserError(f"the Delta table {self._location.text} was not written: others change it all the time")

    def _add(self, table: Any, staged: Sequence[StagedRows], work: Work) -> bool:
        from deltalake import CommitProperties, Schema, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import create_table_with_add_actions

        actions = [action for one in staged if isinstance(one, StagedFiles) for action in one.files]
        attempts = " ".join(one.attempt for one in staged if isinstance(one, StagedFiles) and one.files)
        properties = CommitProperties(
            app_transactions=[Transaction(work.application, work.version)],
            custom_metadata={
                **work.note,
                VERSION: f"{work.application} {work.version}",
                ATTEMPTS: attempts,
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
                check_kinds(self._location.text, there, self._schema)
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
            raise UserError(f"the Delta table {self._location.text} was not written: {_line(problem)}") from problem
        return True

    def sweep(self, work: Work) -> None:
        store, root = self._location.file_system()
        last = self.reached(work.application)
        if last is None or last < work.version:
            remove_files(store, f"{root}/{_batch_folder(work.application, work.version)}", keep=())
        if last is not None and last <= work.version:
            kept = self._committed_attempts(work.application, last)
            if kept is not None:
                remove_files(store, f"{root}/{_batch_folder(work.application, last)}", keep=kept)

    def _committed_attempts(self, application: str, version: int) -> list[str] | None:
        """Those whose files the commit of a version added; None if its commit is too far away."""
        table = self._table()
        for limit in (1, _LOOK_BACK) if table is not None else ():
            for entry in table.history(limit):
                if entry.get(VERSION) == f"{application} {version}":
                    return str(entry.get(ATTEMPTS, "")).split()
        return None

    def _table(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        uri, options = self._location.uri, self._location.storage_options()
        try:
            return DeltaTable(uri, storage_options=options) if DeltaTable.is_deltatable(uri, options) else None
        except (DeltaError, OSError) as problem:
            raise UserError(f"{self._location.text} cannot be reached: {_line(problem)}") from problem


def words(text: str | None) -> list[str]:
    """An option with several columns is JSON (`["a", "b"]`), or words with commas."""
    if not text:
        return []
    if text.startswith("["):
        return [str(name) for name in json.loads(text)]
    return [word.strip() for word in text.split(",") if word.strip()]


def folder_name(application: str) -> str:
    """Safe in paths and URLs, and different for different applications."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", application)
    return safe if safe == application else f"{safe}-{hashlib.sha256(application.encode()).hexdigest()[:12]}"


def _batch_folder(application: str, version: int) -> str:
    return f"batches/{folder_name(application)}/{version:012d}"


def remove_files(store: Any, folder: str, *, keep: Sequence[str]) -> None:
    """All files of a folder but those of some attempts. What cannot be removed now stays invisible."""
    from pyarrow.fs import FileSelector

    with suppress(OSError):
        for entry in store.get_file_info(FileSelector(folder, allow_not_found=True)):
            if entry.is_file and entry.base_name.rpartition("-")[0] not in keep:
                with suppress(OSError):
                    store.delete_file(entry.path)


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


def statistics(metadata: Any) -> dict[str, dict[str, Any]]:
    """Delta's statistics of a file, for columns and types whose order is the same for every reader.

    Floating-point numbers have none: a NaN is larger than all numbers for Spark and is left out by Parquet. Times have
    milliseconds in Delta's statistics, so a maximum is rounded up.
    """
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    no_bounds: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(min(row_group.num_columns, _STATS_COLUMNS)):
            column = row_group.column(number)
            name, found = column.path_in_schema, column.statistics
            if "." in name:
                continue
            if found is None or not found.has_null_count:
                no_bounds.add(name)
                nulls.pop(name, None)
                continue
            if name not in no_bounds:
                nulls[name] = nulls.get(name, 0) + found.null_count
            if found.null_count == row_group.num_rows:
                continue
            bounds = _bounds(found)
            if bounds is None:
                no_bounds.add(name)
            else:
                lowest[name] = min(lowest.get(name, bounds[0]), bounds[0])
                highest[name] = max(highest.get(name, bounds[1]), bounds[1])
    return {
        "minValues": {name: _lower_text(value) for name, value in lowest.items() if name not in no_bounds},
        "maxValues": {name: _upper_text(value) for name, value in highest.items() if name not in no_bounds},
        "nullCount": nulls,
    }


def _bounds(found: Any) -> tuple[Any, Any] | None:
    if not found.has_min_max:
        return None
    low, high = found.min, found.max
    if isinstance(low, str):
        return (low, high) if len(high) <= _STATS_TEXT and len(low) <= _STATS_TEXT else None
    if isinstance(low, bool) or not isinstance(low, int | date):
        return None
    return low, high


def _lower_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return _milliseconds(value)
    return value.isoformat() if isinstance(value, date) else value


def _upper_text(value: Any) -> Any:
    return _milliseconds(value + timedelta(microseconds=999)) if isinstance(value, datetime) else _lower_text(value)


def _milliseconds(value: datetime) -> str:
    text = (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat(timespec="milliseconds")
    return f"{text}Z" if value.tzinfo else text


def _partition_text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return plain.isoformat(sep=" ", timespec="microseconds")
    return value.isoformat() if isinstance(value, date) else str(value)


def _line(problem: BaseException) -> str:
    """The first line that says something, without the colours of delta-rs."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(problem))
    return " ".join(line.strip(" ↳") for line in plain.splitlines()[:3] if line.strip())
