"""Iceberg tables by pyiceberg: tasks write data files, the driver appends them with the marker in the same commit.

The marker is a property of the table, `ottla.version.APPLICATION`, so that finding it costs one look. Earlier versions of
Ottla wrote it into the summaries of snapshots; such a marker counts until the first commit of this version.

Catalogs (REST, SQL, Glue, Hive) are pyiceberg's own, with its properties under `catalog.`. Only the driver talks to the
catalog, except for an upsert, which one task does by pyiceberg.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ottla.connect.locations import locate
from ottla.connect.sinks.base import (
    DELETED,
    Work,
    last_of_each,
    of_known_types,
    refuse_null_keys,
    without_deleted,
)
from ottla.connect.sinks.delta import check_kinds
from ottla.connect.sinks.iceberg import COMMIT_TRIES, pause, without_own_retry
from ottla.model.extras import require
from ottla.model.user_error import UserError
from ottla.pipelines.options import boolean, whole
from ottla.pipelines.outputs.base import StagedRows, TaskAttempt
from ottla.pipelines.outputs.data_files import (
    StagedFiles,
    bounded_rows,
    check_repeat,
    folder_name,
    need_one_task,
    plain_line,
    stored_rows,
    words,
)
from ottla.pipelines.outputs.evolution import EVOLVE, check_columns
from ottla.pipelines.ports import SPARK_CATALOG

UPSERT_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 128 * 1024 * 1024
MARKER, ATTEMPTS, ROWS = "ottla.version.", "ottla.attempts.", "ottla.rows."
_DATA_PATH = "write.data.path"
_SQL = ("sqlite", "postgresql", "mysql")


def make(options: Mapping[str, str], *, overwrite: bool) -> IcebergOutput:
    table = options.get("table", "")
    if not all(table.rpartition(".")[::2]):
        raise UserError(f"the option table is NAMESPACE.NAME of an Iceberg table, not {table!r}")
    properties = {
        name.removeprefix("catalog."): value for name, value in options.items() if name.startswith("catalog.")
    }
    return IcebergOutput(
        table,
        catalog_properties(properties),
        keys=() if overwrite else words(options.get("keys")),
        partition_by=words(options.get("partitionby")),
        overwrite=overwrite,
        upsert_bytes=whole(options, "upsertmaxbytes") or UPSERT_BYTES,
        evolve=boolean(options, EVOLVE, default=False),
    )


def catalog_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """As pyiceberg needs them. A SQL catalog's warehouse is a location; that of other catalogs is their own name for one."""
    made = {name: value for name, value in properties.items() if name != SPARK_CATALOG}
    if "warehouse" in made and made.get("uri", "").startswith(_SQL):
        made |= locate(made["warehouse"]).iceberg_properties()
    return made


class IcebergOutput:
    def __init__(
        self,
        table: str,
        catalog: Mapping[str, str],
        *,
        keys: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        overwrite: bool = False,
        upsert_bytes: int = UPSERT_BYTES,
        evolve: bool = False,
    ) -> None:
        require("an Iceberg table", "pyiceberg")
        self._name, self._catalog_properties = table, dict(catalog)
        self._keys, self._partition_by, self._overwrite = list(keys), list(partition_by), overwrite
        self._upsert_bytes, self._evolve = upsert_bytes, evolve
        self._rows_schema: pa.Schema = pa.schema([])
        self._schema: pa.Schema = pa.schema([])
        self._metadata: Any = None
        self._io: Any = None
        """How tasks reach the table's files, with credentials that a REST catalog gave."""
        self._committed: list[str] | None = None
        """The attempts that the commit of this object took."""

    @property
    def merges_in_task(self) -> bool:
        return bool(self._keys)

    def prepare(self, schema: pa.Schema) -> None:
        self._rows_schema = schema
        columns = of_known_types(schema.empty_table()).schema
        self._schema = pa.schema([column for column in columns if column.name != DELETED])
        missing = [name for name in [*self._partition_by, *self._keys] if name not in self._schema.names]
        if missing:
            raise UserError(f"the Iceberg table {self._name} needs the column {missing[0]!r}, which the rows lack")
        with self._problems("was not written"):
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            table = self._load(catalog) or self._create(catalog)
            self._fit(table)
            self._metadata, self._io = table.metadata, table.io

    def _fit(self, table: Any) -> None:
        """With `evolve` new columns are added, and a number may become a wider one. In complete mode, too."""
        if self._evolve or self._overwrite:
            with table.update_schema() as columns:
                columns.union_by_name(self._schema)
            return
        there, name = table.schema().as_arrow(), f"the Iceberg table {self._name}"
        check_kinds(name, there, self._schema)
        check_columns(name, there, self._schema, evolve=False, integers_by_value=False)

    def _create(self, catalog: Any) -> Any:
        table = catalog.create_table_if_not_exists(self._name, self._schema)
        if self._partition_by and table.spec().is_unpartitioned():
            with table.update_spec() as spec:
                for name in self._partition_by:
                    spec.add_identity(name)
        return table

    def reached(self, application: str) -> int | None:
        with self._problems("cannot be read"):
            table = self._load(self._catalog())
            return None if table is None else _reached(table, application)

    def stage(self, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt) -> StagedRows:
        if self._keys:
            return self._upsert(batches, attempt)
        folder = f"{self._batch_folder(attempt.application, attempt.version)}/{attempt.name}"
        properties = {**self._metadata.properties, _DATA_PATH: folder}
        metadata = self._metadata.model_copy(update={"properties": properties})
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        files, count, rows = [], itertools.count(), 0
        with self._problems("was not written"):
            for chunk in _chunks(stored_rows(batch, self._schema) for batch in batches):
                files += list(_dataframe_to_data_files(metadata, chunk, self._io, counter=count))
                rows += chunk.num_rows
        return StagedFiles(application=attempt.application, attempt=attempt.name, rows=rows, files=tuple(files))

    def _upsert(self, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt) -> StagedRows:
        need_one_task(attempt, self._name)
        rows = bounded_rows(batches, self._rows_schema, self._upsert_bytes, self._name)
        refuse_null_keys(rows, self._keys, f"the Iceberg table {self._name}")
        kept, gone = without_deleted(last_of_each(rows, self._keys))
        kept = pa.concat_tables(
            [stored_rows(part, self._schema) for part in kept.to_batches()] or [self._schema.empty_table()]
        )
        gone_keys = gone.select(self._keys).to_pylist()

        def change(transaction: Any, note: dict[str, str]) -> None:
            if gone_keys:
                transaction.delete(_any_of(gone_keys), snapshot_properties=note)
            if kept.num_rows:
                transaction.upsert(kept, join_cols=self._keys, snapshot_properties=note)

        if not self._change(attempt.work, [], change, rows.num_rows):
            table = self._load(self._catalog())
            check_repeat(self._name, attempt, table.properties.get(f"{ROWS}{attempt.application}"), rows.num_rows)
        return StagedRows(application=attempt.application, attempt=attempt.name, rows=rows.num_rows)

    def commit(self, staged: Sequence[StagedRows], work: Work) -> bool:
        files = [file for part in staged if isinstance(part, StagedFiles) for file in part.files]
        if self._keys and not work.is_marked:
            return True
        if self._keys:
            last = self.reached(work.application)
            if last is None or last < work.version:
                raise UserError(f"the task that merges into {self._name} left no marker: run the batch again")
            return True

        def change(transaction: Any, note: dict[str, str]) -> None:
            from pyiceberg.expressions import AlwaysTrue

            if self._overwrite and transaction.table_metadata.current_snapshot() is not None:
                transaction.delete(AlwaysTrue(), snapshot_properties=note)
            if files:
                with transaction.update_snapshot(snapshot_properties=note).fast_append() as append:
                    for file in files:
                        append.append_data_file(file)

        self._committed = [part.attempt for part in staged if part.rows]
        return self._change(work, self._committed, change)

    def _change(self, work: Work, attempts: Sequence[str], change: Any, rows: int | None = None) -> bool:
        """One commit. When others were faster the table is looked at again: pyiceberg's own retry would not see the marker."""
        from pyiceberg.exceptions import CommitFailedException

        with self._problems("was not written"):
            for number in range(COMMIT_TRIES):
                table = without_own_retry(self._load(self._catalog()))
                last = _reached(table, work.application)
                if last is not None and last >= work.version:
                    return False
                marker = {
                    f"{MARKER}{work.application}": str(work.version),
                    f"{ATTEMPTS}{work.application}": " ".join(attempts),
                    **({f"{ROWS}{work.application}": str(rows)} if rows is not None else {}),
                }
                try:
                    with table.transaction() as transaction:
                        if work.is_marked:
                            transaction.set_properties(marker)
                        change(transaction, dict(work.note))
                except CommitFailedException:
                    pause(number)
                else:
                    return True
        raise UserError(f"the Iceberg table {self._name} was not written: others change it all the time")

    def sweep(self, work: Work, job: str | None = None) -> None:
        if not work.is_marked and job is None:
            if self._committed is not None:
                self._remove(work.application, work.version, keep=self._committed)
            return
        with self._problems("cannot be read"):
            table = self._load(self._catalog())
        if table is None:
            return
        last = _reached(table, work.application)
        if job is not None and (last is None or last < work.version):
            self._remove(work.application, work.version, of_job=job)
        attempts = table.properties.get(f"{ATTEMPTS}{work.application}")
        if last is not None and attempts is not None:
            self._remove(work.application, last, keep=attempts.split())

    def _remove(self, application: str, version: int, *, keep: Sequence[str] = (), of_job: str = "") -> None:
        """Folders of attempts, in file systems that can list them; what stays is invisible."""
        from pyarrow.fs import FileSelector
        from pyiceberg.io.pyarrow import PyArrowFileIO

        if not isinstance(self._io, PyArrowFileIO):
            return
        folder = self._batch_folder(application, version)
        with suppress(OSError):
            scheme, host, path = PyArrowFileIO.parse_location(folder)
            store = self._io.fs_by_scheme(scheme, host)
            for entry in store.get_file_info(FileSelector(path, allow_not_found=True)):
                attempt = posixpath.basename(entry.path)
                if attempt not in keep and attempt.endswith(of_job):
                    store.delete_dir(entry.path)

    def _batch_folder(self, application: str, version: int) -> str:
        root = self._metadata.properties.get(_DATA_PATH) or f"{self._metadata.location.rstrip('/')}/data"
        return f"{root}/batches/{folder_name(application)}/{version:012d}"

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("ottla", **self._catalog_properties)

    def _load(self, catalog: Any) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _problems(self, what: str) -> _Problems:
        return _Problems(f"the Iceberg table {self._name} {what}")


class _Problems:
    """Errors of pyiceberg, its catalogs and file systems as one sentence."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        if problem is None or isinstance(problem, UserError) or not isinstance(problem, Exception):
            return
        module = type(problem).__module__.partition(".")[0]
        if isinstance(problem, OSError | ValueError) or module in {
            "pyiceberg",
            "sqlalchemy",
            "requests",
            "botocore",
            "pyarrow",
        }:
            raise UserError(f"{self._what}: {plain_line(problem)}") from problem


def _reached(table: Any, application: str) -> int | None:
    """Of the property, and of snapshots: those of Spark's MERGE and of earlier versions of Ottla."""
    summaries = [snapshot.summary for snapshot in table.snapshots() if snapshot.summary]
    markers = [properties.get(f"{MARKER}{application}") for properties in (table.properties, *summaries)]
    return max((int(marker) for marker in markers if marker is not None), default=None)


def _chunks(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    kept: list[pa.Table] = []
    for table in tables:
        if table.num_rows:
            kept.append(table)
        if sum(part.nbytes for part in kept) >= CHUNK_BYTES:
            yield pa.concat_tables(kept)
            kept = []
    if kept:
        yield pa.concat_tables(kept)


def _any_of(keys: list[dict[str, Any]]) -> Any:
    from pyiceberg import expressions

    equal, null, both, either = (getattr(expressions, name) for name in ("EqualTo", "IsNull", "And", "Or"))
    rows = []
    for row in keys:
        parts = [equal(name, value) if value is not None else null(name) for name, value in row.items()]
        rows.append(both(*parts) if len(parts) > 1 else parts[0])
    return either(*rows) if len(rows) > 1 else rows[0]
