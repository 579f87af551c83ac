"""Data files that one attempt writes: split by partition, with bounded memory, and facts about each file for the commit.

Rows are collected up to FLUSH_BYTES, split by the values of the partition columns, and appended to one open file for each
partition. A file that reaches FILE_BYTES is closed and the next one begins; so does the file that was used longest ago when
more than OPEN_FILES are open.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.connect.locations import store_advice
from ottla.connect.sinks.base import DELETED, of_known_types
from ottla.model.user_error import UserError
from ottla.pipelines.outputs.base import StagedRows, TaskAttempt
from ottla.system.files import sync_folders, sync_path

FLUSH_BYTES = 64 * 1024 * 1024
FILE_BYTES = 256 * 1024 * 1024
OPEN_FILES = 50
SUFFIXES = {"parquet": "parquet", "json": "json", "csv": "csv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    path: str
    """Below the folder of the attempt's files."""
    partition: tuple[Any, ...]
    """A value for each partition column."""
    rows: int
    size: int
    metadata: Any = None
    """Parquet's own, until the output has taken its statistics from it."""


@dataclass(frozen=True, kw_only=True)
class StagedFiles(StagedRows):
    files: tuple[Any, ...] = ()


class FormatWriter(Protocol):
    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None: ...


class AttemptFiles:
    """The files of one attempt, named NAME-0, NAME-1 ... in a folder."""

    def __init__(
        self,
        store: Any,
        root: str,
        folder: str,
        name: str,
        *,
        kind: str = "parquet",
        suffix: str | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        self._store, self._root, self._folder, self._name, self._kind = store, root, folder, name, kind
        self._suffix = suffix or SUFFIXES[kind]
        self._partition_by = list(partition_by)
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self._closed: list[DataFile] = []
        self._number = 0
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        if problem is None:
            return
        self._abandon()
        if isinstance(problem, OSError):
            raise UserError(f"{self._root} was not written: {plain_line(problem)}") from problem

    def write(self, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._waiting_bytes >= FLUSH_BYTES:
            self._flush()

    def close(self) -> list[DataFile]:
        """All files, which survive a power cut if they are local."""
        self._flush()
        for partition in list(self._open):
            self._close(partition)
        if self._closed and is_local(self._store):
            sync_folders(self._folder, self._root)
        return self._closed

    def _abandon(self) -> None:
        """Removes what was written, as far as it can be reached."""
        for partition in list(self._open):
            with suppress(OSError, pa.ArrowException):
                self._close(partition)
        for file in self._closed:
            with suppress(OSError):
                self._store.delete_file(f"{self._folder}/{file.path}")

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        for partition, part in by_partition(rows, self._partition_by):
            file = self._open.pop(partition, None) or self._new(part.schema)
            self._open[partition] = file  # the last of the dict is the one that was used last
            file.write(part)
            if file.size() >= FILE_BYTES:
                self._close(partition)

    def _new(self, schema: pa.Schema) -> _OpenFile:
        if len(self._open) >= OPEN_FILES:
            self._close(next(iter(self._open)))
        if is_local(self._store):
            os.makedirs(self._folder, exist_ok=True)
        path = f"{self._name}-{self._number}.{self._suffix}"
        self._number += 1
        return _OpenFile(self._store, self._folder, path, self._kind, schema)

    def _close(self, partition: tuple[Any, ...]) -> None:
        self._closed.append(self._open.pop(partition).close(partition))


class _OpenFile:
    def __init__(self, store: Any, folder: str, path: str, kind: str, schema: pa.Schema) -> None:
        self._path, self._full_path = path, f"{folder}/{path}"
        self._is_local = is_local(store)
        self._stream = store.open_output_stream(self._full_path)
        self._metadata: list[Any] = []
        self._writer = _WRITERS[kind](self._stream, schema, self._metadata)
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        self._writer.write(rows)
        self._rows += rows.num_rows

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self, partition: tuple[Any, ...]) -> DataFile:
        try:
            self._writer.close()
            size = self.size()
        finally:
            self._stream.close()
        if self._is_local:
            sync_path(self._full_path)
        metadata = self._metadata[0] if self._metadata else None
        return DataFile(path=self._path, partition=partition, rows=self._rows, size=size, metadata=metadata)


@dataclass(slots=True)
class _Parquet:
    stream: Any
    schema: pa.Schema
    metadata: list[Any]
    _writer: Any = field(init=False)

    def __post_init__(self) -> None:
        self._writer = pq.ParquetWriter(self.stream, self.schema, metadata_collector=self.metadata)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def close(self) -> None:
        self._writer.close()


@dataclass(slots=True)
class _Json:
    """One object in each line."""

    stream: Any
    schema: pa.Schema
    metadata: list[Any]

    def write(self, rows: pa.Table) -> None:
        import msgspec

        encoder = msgspec.json.Encoder(decimal_format="number")
        for batch in rows.to_batches(max_chunksize=10_000):
            self.stream.write(encoder.encode_lines(batch.to_pylist(maps_as_pydicts="lossy")))

    def close(self) -> None:
        return


@dataclass(slots=True)
class _Csv:
    """With a header."""

    stream: Any
    schema: pa.Schema
    metadata: list[Any]
    _writer: Any = field(init=False)

    def __post_init__(self) -> None:
        import pyarrow.csv

        self._writer = pyarrow.csv.CSVWriter(self.stream, self.schema)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def close(self) -> None:
        self._writer.close()


_WRITERS: dict[str, Callable[[Any, pa.Schema, list[Any]], FormatWriter]] = {
    "parquet": _Parquet,
    "json": _Json,
    "csv": _Csv,
}


def by_partition(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each combination of values, without the partition columns."""
    if not names:
        yield (), rows
        return
    numbered = rows.select(list(names)).append_column("__row", pa.array(range(rows.num_rows), pa.int64()))
    groups = numbered.group_by(list(names), use_threads=False).aggregate([("__row", "list")])
    stored_columns = rows.drop_columns(list(names))
    columns = [groups.column(name).to_pylist() for name in names]
    for values, numbers in zip(zip(*columns, strict=True), groups.column("__row_list"), strict=True):
        yield tuple(values), stored_columns.take(numbers.values)


def stored_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The rows of a batch as the table stores them: without deleted rows, with the table's types."""
    import pyarrow.compute as pc

    rows = pa.Table.from_batches([batch])
    if DELETED in rows.column_names:
        rows = rows.filter(pc.invert(pc.fill_null(rows.column(DELETED), False)))
    rows = of_known_types(rows, schema)
    names = [name for name in schema.names if name in rows.column_names]
    try:
        cast = rows.select(names).cast(pa.schema([schema.field(name) for name in names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as problem:
        raise UserError(f"a row does not fit the table: {str(problem).splitlines()[0]}") from problem
    return cast


def need_one_task(attempt: TaskAttempt, table: str) -> None:
    """An upsert reads the whole table: two tasks would each write over what the other read."""
    if attempt.task > 0:
        raise UserError(
            f"rows for the keys of {table} come in several tasks: call coalesce(1) before the write, and give a new txnVersion"
        )


def check_repeat(table: str, attempt: TaskAttempt, before: str | None, rows: int) -> None:
    """Compares the rows with those of the merge that is there, as far as its commit counted them."""
    if before is not None and int(before) != rows:
        raise UserError(
            f"batch {attempt.version} of {attempt.application} was merged into {table} with {before} rows and has {rows} now: "
            "give a new txnVersion, or start the query with a new checkpoint"
        )


def bounded_rows(batches: Iterator[pa.RecordBatch], schema: pa.Schema, most_bytes: int, table: str) -> pa.Table:
    """The rows of an upsert, which one task holds in memory."""
    kept, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > most_bytes:
            raise UserError(
                f"an upsert into {table} has more than {most_bytes:,} bytes in one batch: read less in a batch "
                "(maxOffsetsPerTrigger), or raise the option upsertMaxBytes and the memory of Python workers"
            )
        kept.append(batch)
    return pa.Table.from_batches(kept) if kept else schema.empty_table()


def is_local(store: Any) -> bool:
    from pyarrow.fs import LocalFileSystem

    return isinstance(store, LocalFileSystem)


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


def remove_files(store: Any, folder: str, *, keep: Sequence[str] = (), of_job: str = "") -> None:
    """The files of a job's attempts, or of all attempts but those to keep. What cannot be removed now stays invisible."""
    from pyarrow.fs import FileSelector

    with suppress(OSError):
        for entry in store.get_file_info(FileSelector(folder, allow_not_found=True)):
            attempt = entry.base_name.rpartition("-")[0]
            if entry.is_file and attempt not in keep and attempt.endswith(of_job):
                with suppress(OSError):
                    store.delete_file(entry.path)


def plain_line(problem: BaseException) -> str:
    """What to do about an error of an object store; else the lines that say something as one, without delta-rs' colours."""
    advice = store_advice(problem)
    if advice:
        return advice
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(problem))
    return " ".join(line.strip(" ↳") for line in plain.splitlines()[:3] if line.strip())
