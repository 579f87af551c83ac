"""Parquet, JSON and CSV files in any file system: tasks stage files out of sight, and the commit is one small object.

    TABLE/[COLUMN=VALUE/]APPLICATION-VERSION-TASK-N.parquet   what readers see, in Hive's folders
    TABLE/_ottla/APPLICATION.json                             the last commit: its version and the files that it moves
    TABLE/_ottla/APPLICATION.moved                            the last version whose files are all at their places
    TABLE/_ottla/single-writes.json                           the columns of all writes without an application
    TABLE/_ottla/staged/APPLICATION/VERSION/                  what attempts wrote

The driver writes the commit object, and from then on the batch is there. It moves the staged files to their places
afterwards; a driver that dies in between leaves the rest to the next one, which reads the object. A file that is neither
staged nor moved then is an error; after the moves, readers may take files away. A reader of folders sees
whole files, each once, and may see a batch grow for the moment of the moves. `committed_files` gives whole batches only.

A task's file has the same name in every attempt, so that nothing can put one task's rows into a folder twice. Earlier
versions wrote one file for each batch and folder, `APPLICATION-VERSION.parquet`: a repeated batch replaces such files.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ottla.connect.locations import Location, locate
from ottla.connect.sinks.base import DELETED, Work, of_known_types
from ottla.connect.sinks.parquet import hive_folder
from ottla.model.user_error import UserError
from ottla.pipelines.options import boolean
from ottla.pipelines.outputs.base import StagedRows, TaskAttempt
from ottla.pipelines.outputs.data_files import (
    SUFFIXES,
    AttemptFiles,
    DataFile,
    StagedFiles,
    folder_name,
    is_local,
    plain_line,
    remove_files,
    stored_rows,
    words,
)
from ottla.pipelines.outputs.evolution import EVOLVE, refused_columns
from ottla.pipelines.outputs.files_commit import FilesCommit, StagedFile
from ottla.system.files import sync_folders, sync_path

HIDDEN = "_ottla"
SINGLE_WRITES = "single-writes"
"""In the place of an application: the columns of all writes without txnAppId."""
_MOVES_AT_ONCE = 16
_LOOKS = 10


def make(options: Mapping[str, str], *, overwrite: bool) -> FilesOutput:
    if not options.get("path"):
        raise UserError("the option path is missing: give it the folder of the files")
    kind = options.get("format", "parquet")
    if kind not in SUFFIXES:
        raise UserError(f"the option format is one of {', '.join(SUFFIXES)}, not {kind!r}")
    if options.get("keys"):
        raise UserError("files have no keys: append rows, or write a Delta, Iceberg or SQL table")
    return FilesOutput(
        locate(options["path"]),
        kind=kind,
        partition_by=words(options.get("partitionby")),
        overwrite=overwrite,
        evolve=boolean(options, EVOLVE, default=False),
    )


class FilesOutput:
    def __init__(
        self,
        location: Location,
        *,
        kind: str = "parquet",
        partition_by: Sequence[str] = (),
        overwrite: bool = False,
        evolve: bool = False,
    ) -> None:
        self._location, self._evolve = location, evolve
        self._kind, self._partition_by, self._overwrite = kind, list(partition_by), overwrite
        self._schema: pa.Schema = pa.schema([])

    def prepare(self, schema: pa.Schema) -> None:
        self.check(schema)
        self._location.make_folder()
        if not self._overwrite:
            self._check_columns()

    def check(self, schema: pa.Schema) -> None:
        """UserError for columns that these files cannot hold."""
        columns = of_known_types(schema.empty_table()).schema
        self._schema = pa.schema([column for column in columns if column.name != DELETED])
        stored = [column for column in self._schema if column.name not in self._partition_by]
        if not stored:
            raise UserError(f"{self._location.text} needs a column beside those of partition_by")
        nested = [column for column in stored if pa.types.is_nested(column.type) or pa.types.is_binary(column.type)]
        if self._kind == "csv" and nested:
            raise UserError(
                f"CSV has no place for the column {nested[0].name} of type {nested[0].type}: cast it, or leave it"
            )

    def _check_columns(self) -> None:
        """Against those of the last commit of each application that writes here."""
        store, root = self._location.file_system()
        there: dict[str, str] = {}
        try:
            for commit in _commits(store, root).values():
                there |= commit.columns
        except OSError as problem:
            raise UserError(f"{self._location.text} cannot be read: {plain_line(problem)}") from problem
        added = [name for name in self._schema.names if name not in there]
        if there and added and not self._evolve:
            raise UserError(refused_columns(f"the table of files {self._location.text}", added))
        for column in self._schema:
            before = there.get(column.name, str(column.type))
            if before != str(column.type):
                raise UserError(
                    f"the column {column.name} of the files in {self._location.text} is {before} and the rows have "
                    f"{column.type}: cast the column in the step, or write to a new folder"
                )

    def reached(self, application: str) -> int | None:
        commit = self._last_commit(application)
        return None if commit is None else commit.version

    def stage(self, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt) -> StagedRows:
        store, root = self._location.file_system()
        folder = f"{_staged_folder(root, attempt.application)}/{attempt.version:012d}"
        suffix = "staged"  # no pattern of a reader matches it
        with AttemptFiles(
            store, root, folder, attempt.name, kind=self._kind, suffix=suffix, partition_by=self._partition_by
        ) as files:
            for batch in batches:
                files.write(self._with_partitions(stored_rows(batch, self._schema)))
            closed = files.close()
        staged = tuple(self._staged(file, attempt, number) for number, file in enumerate(closed))
        return StagedFiles(application=attempt.application, attempt=attempt.name, rows=files.rows, files=staged)

    def _with_partitions(self, rows: pa.Table) -> pa.Table:
        for name in self._partition_by:
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
        return rows

    def _staged(self, file: DataFile, attempt: TaskAttempt, number: int) -> StagedFile:
        folders = [hive_folder(name, value) for name, value in zip(self._partition_by, file.partition, strict=True)]
        name = f"{folder_name(attempt.application)}-{attempt.version:012d}-{attempt.task:05d}-{number}.{SUFFIXES[self._kind]}"
        return StagedFile(name=f"{attempt.version:012d}/{file.path}", path="/".join([*folders, name]), rows=file.rows)

    def commit(self, staged: Sequence[StagedRows], work: Work) -> bool:
        last = self._last_commit(work.application)
        try:
            if last is not None and last.version >= work.version:
                return False
            files = tuple(file for entry in staged if isinstance(entry, StagedFiles) for file in entry.files)
            removed = self._replaced(work, is_first=last is None)
            columns = {column.name: str(column.type) for column in self._schema}
            if last is not None and not self._overwrite:
                columns = {**last.columns, **columns}
            commit = FilesCommit(version=work.version, files=files, removed=removed, note=work.note, columns=columns)
            store, root = self._location.file_system()
            names = _staged_names(store, _staged_folder(root, work.application))
            if any(file.name not in names for file in files):
                raise UserError(f"staged files of {self._location.text} are gone: run the batch again")
            _write_whole(store, _commit_path(root, work.application), commit.to_json())
            self._finish(work.application, commit, is_new=True)
            if not work.is_marked:
                self._forget(work.application, columns)
        except OSError as problem:
            raise UserError(f"{self._location.text} was not written: {plain_line(problem)}") from problem
        return True

    def _finish(self, application: str, commit: FilesCommit, *, is_new: bool) -> None:
        """Moves the files of a commit, unless that is noted as done. Earlier versions made no such note."""
        store, root = self._location.file_system()
        path = _moved_path(root, application)
        noted = _read_whole(store, path)
        if noted == str(commit.version).encode():
            return
        lost = _move(store, root, application, commit)
        if lost and (is_new or noted is not None):
            raise UserError(
                f"{len(lost)} files of batch {commit.version} are neither staged nor in {self._location.text}, the first is "
                f"{lost[0]}: restore them, or write {commit.version} into {path} if a reader has taken them away"
            )
        _write_whole(store, path, str(commit.version).encode())

    def _forget(self, application: str, columns: Mapping[str, str]) -> None:
        """Keeps the columns of a single write, in one object for all of them, and nothing else."""
        store, root = self._location.file_system()
        before = self._last_commit(SINGLE_WRITES)
        if before is not None and not self._overwrite:
            columns = {**before.columns, **columns}
        kept = FilesCommit(version=0, files=(), removed=(), columns=columns)
        _write_whole(store, _commit_path(root, SINGLE_WRITES), kept.to_json())
        for path in (_commit_path(root, application), _moved_path(root, application)):
            store.delete_file(path)
        folder = _staged_folder(root, application)
        with suppress(FileNotFoundError):  # every attempt was without rows
            store.delete_dir(folder)

    def _replaced(self, work: Work, *, is_first: bool) -> tuple[str, ...]:
        """Files that this commit takes out of sight: all of them, or those of this batch that an earlier version wrote."""
        if not self._overwrite and not is_first:
            return ()
        store, root = self._location.file_system()
        paths = _visible(store, root)
        earlier = f"{work.application}-{work.version:012d}.parquet"
        return tuple(path for path in paths if self._overwrite or posixpath.basename(path) == earlier)

    def sweep(self, work: Work, job: str | None = None) -> None:
        """The moves of a commit that its driver did not finish, then what no commit can name any more."""
        store, root = self._location.file_system()
        last = self._last_commit(work.application)
        staged = _staged_folder(root, work.application)
        try:
            if last is not None:
                self._finish(work.application, last, is_new=False)
                for entry in _entries(store, staged):
                    if not entry.is_file and entry.base_name <= f"{last.version:012d}":
                        store.delete_dir(entry.path)
            if job is not None and (last is None or last.version < work.version):
                remove_files(store, f"{staged}/{work.version:012d}", of_job=job)
        except OSError as problem:
            raise UserError(f"{self._location.text} was not written: {plain_line(problem)}") from problem

    def _last_commit(self, application: str) -> FilesCommit | None:
        store, root = self._location.file_system()
        path = _commit_path(root, application)
        try:
            data = _read_whole(store, path)
            return None if data is None else FilesCommit.from_json(data, path)
        except OSError as problem:
            raise UserError(f"{self._location.text} cannot be read: {plain_line(problem)}") from problem


def committed_files(path: str) -> list[str]:
    """The files of whole batches, for a reader who must not see a part of one.

    A batch whose files are being moved is left out. Paths are those of pyarrow's file system.
    """
    store, root = locate(path).file_system()
    for _ in range(_LOOKS):
        before = _commits(store, root)
        visible = _visible(store, root)
        if _commits(store, root) == before:
            hidden = {
                file.path
                for name, commit in before.items()
                if _staged_names(store, f"{root}/{HIDDEN}/staged/{name}") & {file.name for file in commit.files}
                for file in commit.files
            }
            return [f"{root}/{entry}" for entry in visible if entry not in hidden]
    raise UserError(f"{path} changed {_LOOKS} times while it was listed: try again")


def _commits(store: Any, root: str) -> dict[str, FilesCommit]:
    """By the name of the application's folder."""
    commits = {}
    for entry in _entries(store, f"{root}/{HIDDEN}"):
        if entry.is_file and entry.base_name.endswith(".json"):
            with store.open_input_stream(entry.path) as stream:
                commits[entry.base_name.removesuffix(".json")] = FilesCommit.from_json(stream.read(), entry.path)
    return commits


def _visible(store: Any, root: str) -> list[str]:
    """What a reader of folders sees, below the table."""
    paths = (entry.path.removeprefix(f"{root}/") for entry in _entries(store, root, recursive=True) if entry.is_file)
    return [path for path in paths if not any(part.startswith(("_", ".")) for part in path.split("/"))]


def _staged_names(store: Any, folder: str) -> set[str]:
    return {entry.path.removeprefix(f"{folder}/") for entry in _entries(store, folder, recursive=True) if entry.is_file}


def _move(store: Any, root: str, application: str, commit: FilesCommit) -> list[str]:
    """Brings the folder to the state of the commit; what was done before is left as it is. Returns the files that are lost."""
    folder = _staged_folder(root, application)
    names = _staged_names(store, f"{folder}/{commit.version:012d}")
    left = [file for file in commit.files if posixpath.basename(file.name) in names]
    places = [f"{root}/{file.path}" for file in commit.files if posixpath.basename(file.name) not in names]
    lost = [entry.path for entry in (store.get_file_info(places) if places else ()) if not entry.is_file]
    if not left and commit.files:
        return lost
    moved = {file.path for file in commit.files}
    for path in commit.removed:
        if path not in moved and store.get_file_info(f"{root}/{path}").is_file:
            store.delete_file(f"{root}/{path}")
    if is_local(store):
        for file in left:
            os.makedirs(os.path.dirname(f"{root}/{file.path}"), exist_ok=True)
            os.replace(f"{folder}/{file.name}", f"{root}/{file.path}")
        for path in {posixpath.dirname(f"{root}/{file.path}") for file in left}:
            sync_folders(path, root)
    else:
        with ThreadPoolExecutor(_MOVES_AT_ONCE) as pool:
            list(pool.map(lambda file: _move_far(store, f"{folder}/{file.name}", f"{root}/{file.path}"), left))
    return lost


def _move_far(store: Any, source: str, target: str) -> None:
    from pyarrow.fs import HadoopFileSystem

    if isinstance(store, HadoopFileSystem):
        store.create_dir(posixpath.dirname(target), recursive=True)
    store.move(source, target)


def _write_whole(store: Any, path: str, data: bytes) -> None:
    """The object appears whole or not at all, and survives a power cut."""
    if not is_local(store):
        with store.open_output_stream(path) as stream:
            stream.write(data)
        return
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    fresh = f"{path}.{uuid.uuid4().hex}"
    with open(fresh, "wb") as file:
        file.write(data)
    sync_path(fresh)
    os.replace(fresh, path)
    sync_folders(folder, os.path.dirname(folder))


def _read_whole(store: Any, path: str) -> bytes | None:
    try:
        with store.open_input_stream(path) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


def _entries(store: Any, folder: str, *, recursive: bool = False) -> list[Any]:
    from pyarrow.fs import FileSelector

    return list(store.get_file_info(FileSelector(folder, allow_not_found=True, recursive=recursive)))


def _staged_folder(root: str, application: str) -> str:
    return f"{root}/{HIDDEN}/staged/{folder_name(application)}"


def _commit_path(root: str, application: str) -> str:
    return f"{root}/{HIDDEN}/{folder_name(application)}.json"


def _moved_path(root: str, application: str) -> str:
    return f"{root}/{HIDDEN}/{folder_name(application)}.moved"
