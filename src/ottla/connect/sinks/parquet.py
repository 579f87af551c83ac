"""Partitioned Parquet files in a folder or an S3 bucket.

Folders are named as Hive's are (COLUMN=VALUE, escaped; no value is __HIVE_DEFAULT_PARTITION__), so Spark, DuckDB and pyarrow
read the values back. A piece of work is one file per partition value, named by application and version. Repeated work
writes the same names again, so a reader never sees a row twice. An object appears whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.connect.locations import locate
from ottla.connect.sinks.base import Work, of_known_types, without_deleted
from ottla.model.user_error import UserError
from ottla.system.files import sync_folders, sync_path

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def open_store(uri: str) -> tuple[Any, str]:
    """A pyarrow file system and the path in it."""
    return locate(uri).file_system()


class ParquetSink:
    def __init__(self, uri: str, *, partition_by: Sequence[str] = ()) -> None:
        self._store, self._root = open_store(uri)
        self._partition_by = list(partition_by)

    def put(self, rows: pa.Table, work: Work) -> bool:
        kept = of_known_types(without_deleted(rows)[0])
        name = f"{work.application}-{work.version:012d}.parquet"
        try:
            for folder, part in self._parts(kept):
                self._store.create_dir(folder, recursive=True)
                self._write(part, f"{folder}/{name}")
        except (OSError, pa.ArrowException) as problem:
            raise UserError(f"{self._root} was not written: {problem}") from problem
        return True

    def _write(self, part: pa.Table, path: str) -> None:
        from pyarrow.fs import LocalFileSystem

        if isinstance(self._store, LocalFileSystem):
            hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}")
            try:
                pq.write_table(part, hidden, filesystem=self._store)
                sync_path(hidden)
                os.replace(hidden, path)
                sync_folders(os.path.dirname(path), self._root)
            except OSError:
                with suppress(FileNotFoundError):
                    os.unlink(hidden)
                raise
        else:
            pq.write_table(part, path, filesystem=self._store)

    def _parts(self, rows: pa.Table) -> list[tuple[str, pa.Table]]:
        if not self._partition_by:
            return [(self._root, rows)] if rows.num_rows else []
        columns = [
            rows.column(name).to_pylist() if name in rows.column_names else [None] * rows.num_rows
            for name in self._partition_by
        ]
        by_folder: dict[str, list[int]] = {}
        for number, values in enumerate(zip(*columns, strict=True)):
            folder = "/".join(hive_folder(name, value) for name, value in zip(self._partition_by, values, strict=True))
            by_folder.setdefault(folder, []).append(number)
        stored_columns = rows.drop_columns([name for name in self._partition_by if name in rows.column_names])
        return [(f"{self._root}/{folder}", stored_columns.take(numbers)) for folder, numbers in by_folder.items()]

    def close(self) -> None:
        return


def hive_folder(name: str, value: Any) -> str:
    """Escapes a value to exactly one folder: a slash would make two folders, and two dots would leave the table."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    folder_value = _NO_VALUE if value is None or text == "" else quote(text, safe=" ")
    return f"{quote(name, safe=' ')}={folder_value}"
