"""Partitioned Parquet files in a folder or an S3 bucket.

A piece of work is one file per partition value, named by application and version: repeated work writes the same names
again, so a reader never sees a row twice, and an object appears whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.connect.sinks.base import Work, without_deleted
from ottla.tables.topics import TableError


def open_store(uri: str) -> tuple[Any, str]:
    """A pyarrow file system and the path in it, for a folder or `s3://bucket/path?endpoint=http://host:port`."""
    from pyarrow import fs

    parts = urlsplit(uri)
    if parts.scheme != "s3":
        return fs.LocalFileSystem(), os.path.abspath(uri.removeprefix("file://"))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    endpoint = urlsplit(query["endpoint"]) if "endpoint" in query else None
    store = fs.S3FileSystem(
        region=query.get("region", os.environ.get("AWS_REGION", "us-east-1")),
        endpoint_override=endpoint.netloc if endpoint else None,
        scheme=endpoint.scheme if endpoint else "https",
    )
    return store, f"{parts.netloc}{parts.path}".rstrip("/")


class ParquetSink:
    def __init__(self, uri: str, *, partition_by: Sequence[str] = ()) -> None:
        self._store, self._root = open_store(uri)
        self._partition_by = list(partition_by)

    def put(self, rows: pa.Table, work: Work) -> bool:
        kept, _ = without_deleted(rows)
        name = f"{work.application}-{work.version:012d}.parquet"
        try:
            for folder, part in self._parts(kept):
                self._store.create_dir(folder, recursive=True)
                self._write(part, f"{folder}/{name}")
        except OSError as problem:
            raise TableError(f"{self._root} was not written: {problem}") from problem
        return True

    def _write(self, part: pa.Table, path: str) -> None:
        from pyarrow.fs import LocalFileSystem

        if isinstance(self._store, LocalFileSystem):
            hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}")
            try:
                pq.write_table(part, hidden, filesystem=self._store)
                os.replace(hidden, path)
            except OSError:
                with suppress(FileNotFoundError):
                    os.unlink(hidden)
                raise
        else:
            pq.write_table(part, path, filesystem=self._store)

    def _parts(self, rows: pa.Table) -> list[tuple[str, pa.Table]]:
        if not self._partition_by:
            return [(self._root, rows)] if rows.num_rows else []
        import pyarrow.compute as pc

        found = []
        for values in rows.group_by(self._partition_by).aggregate([]).to_pylist():
            mask: Any = None
            for name in self._partition_by:
                column, value = rows.column(name), values[name]
                same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
                mask = same if mask is None else pc.and_(mask, same)
            folder = "/".join(f"{name}={values[name]}" for name in self._partition_by)
            found.append((f"{self._root}/{folder}", rows.filter(mask).drop_columns(self._partition_by)))
        return found

    def close(self) -> None:
        return
