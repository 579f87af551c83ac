"""Files of checkpoints: on a local disk, or on any file system that Spark's Hadoop can open (s3a, gs, abfs, hdfs).

All reads and writes of checkpoint files by our own code happen here; Spark writes its own logs and state itself. A session
in this process opens file systems through its JVM. A Spark Connect client has no JVM: reads and writes are Spark jobs then,
and nothing can be removed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://?(?=[^/]|/)")
_OBJECT_STORES = ("s3a", "gs", "abfs", "abfss", "wasb", "wasbs", "oci", "cosn", "oss")
_NOTE, _FINISHED = "ottla.json", "ottla.finished.json"
HOLDER, LETTER_FORMATS, STATE_NOTES = "ottla.driver.json", "ottla.letters.json", "ottla.state.json"
_OWN_FILES = (_NOTE, _FINISHED, HOLDER, LETTER_FORMATS, STATE_NOTES)
_NOTE_VERSION = 1


def scheme_of(location: str) -> str:
    match = _SCHEME.match(location)
    return match[1].lower() if match else "file"


def checkpoint_root(location: str) -> str:
    """A location that means the same in every folder and process: an absolute local path, or a URI."""
    scheme = scheme_of(location)
    if scheme == "s3":
        raise UserError(
            f"the checkpoints {location} have the scheme s3, which Spark does not open: write s3a://BUCKET/PATH"
        )
    if scheme != "file":
        return location.rstrip("/")
    if not _SCHEME.match(location):
        return os.path.abspath(location)
    parts = urlsplit(location)
    if parts.netloc not in {"", "localhost"}:
        raise UserError(f"the checkpoints {location} name the host {parts.netloc}: a local folder is file:///PATH")
    return os.path.abspath(unquote(parts.path))


def spark_location(path: str) -> str:
    """A path below `checkpoint_root` as Spark and Hadoop must see it: without a scheme, fs.defaultFS would decide."""
    return f"file://{path}" if scheme_of(path) == "file" else path


def is_object_store(location: str) -> bool:
    return scheme_of(location) in _OBJECT_STORES


class CheckpointReader(Protocol):
    def read(self, path: str) -> str | None:
        """None for a file that is missing."""
        ...

    def names(self, path: str) -> list[str]:
        """Of the files and folders in a folder; empty for a folder that is missing."""
        ...


class CheckpointFiles(CheckpointReader, Protocol):
    def create(self, path: str, text: str) -> bool:
        """False if the file exists already."""
        ...

    def write(self, path: str, text: str) -> None: ...

    def remove(self, path: str) -> None:
        """A file, or a folder with all that is in it."""
        ...


class LocalFiles:
    def read(self, path: str) -> str | None:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            return joined_parts(self, path)
        except (OSError, ValueError) as problem:
            raise UserError(f"the checkpoint file {path} cannot be read: {problem}") from problem

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def create(self, path: str, text: str) -> bool:
        """The whole file at once: a full disk or a kill leaves none."""
        fresh = self._written(path, text)
        try:
            os.link(fresh, path)
        except FileExistsError:
            return False
        finally:
            os.remove(fresh)
        return True

    def write(self, path: str, text: str) -> None:
        fresh = self._written(path, text)
        if os.path.isdir(path):  # of a Spark Connect client
            shutil.rmtree(path)
        os.replace(fresh, path)

    def remove(self, path: str) -> None:
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)

    def _written(self, path: str, text: str) -> str:
        folder = os.path.dirname(path)
        fresh = f"{path}.{uuid.uuid4().hex}.new"  # containers that share a disk have equal process ids
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)  # Spark's state stores in it hold records
        except OSError as problem:
            raise UserError(f"the checkpoint {folder} cannot be made: {problem.strerror}") from problem
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            self.remove(fresh)
            raise UserError(f"the checkpoint {folder} cannot be written: {problem.strerror}") from problem
        return fresh


def last_batch(files: CheckpointReader, query: str) -> int | None:
    """The number of the last planned batch; `query` is the folder of the query's checkpoint."""
    return max((int(name) for name in files.names(f"{query}/offsets") if name.isdigit()), default=None)


def planned_ms(files: CheckpointReader, query: str, batch_id: int) -> int | None:
    """When Spark planned the batch. None if its file is half written, which Spark reports."""
    text = files.read(f"{query}/offsets/{batch_id}") or ""
    try:
        return int(json.loads(text.splitlines()[1])["batchTimestampMs"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def joined_parts(files: CheckpointFiles, path: str) -> str | None:
    """A file that a Spark Connect client wrote is a folder of parts. None while that client is writing."""
    parts = [name for name in files.names(path) if name.startswith("part-")]
    return "".join(files.read(f"{path}/{name}") or "" for name in parts) if parts else None


class ConnectFiles:
    """Through Spark jobs on the server, for a Spark Connect client."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, path: str) -> str | None:
        from pyspark.errors import AnalysisException

        try:
            rows = self._spark.read.text(spark_location(path), wholetext=True).collect()
        except AnalysisException:
            return None
        return "".join(row[0] for row in rows)

    def names(self, path: str) -> list[str]:
        """Of files anywhere below, as the first part of their path."""
        from pyspark.errors import AnalysisException

        try:
            reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
            rows = reader.load(spark_location(path)).select("path").collect()
        except AnalysisException:
            return []
        below_path = [str(row[0]).partition(path.partition(":")[2].strip("/") or path)[2] for row in rows]
        return sorted({name.strip("/").partition("/")[0] for name in below_path} - {""})

    def create(self, path: str, text: str) -> bool:
        if self.read(path) is not None:
            return False
        self.write(path, text)
        return True

    def write(self, path: str, text: str) -> None:
        rows = self._spark.createDataFrame([(text,)], "value string")
        rows.coalesce(1).write.mode("overwrite").text(spark_location(path))

    def remove(self, path: str) -> None:
        raise UserError(f"a Spark Connect client cannot remove {path}: run this with --master instead of --remote")


def open_files(spark: SparkSession, root: str) -> CheckpointFiles:
    """For the code of the program. UserError for a file system that Spark cannot open."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return ConnectFiles(spark)
    if scheme_of(root) == "file":
        return LocalFiles()
    from ottla.pipelines.hadoop_files import HadoopFiles  # which has the functions above

    return HadoopFiles(spark, root)


def open_driver_files(spark: SparkSession, root: str) -> CheckpointFiles:
    """For a function of foreachBatch, which runs on the driver's machine, also with Spark Connect."""
    return LocalFiles() if scheme_of(root) == "file" else open_files(spark, root)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder of one pipeline: our note in it, and a folder of Spark's for each query."""

    files: CheckpointFiles
    folder: str

    @property
    def pipeline(self) -> str:
        return self.folder.rpartition("/")[2]

    def note(self) -> dict[str, Any]:
        """Empty for a checkpoint that is new, or of a version before."""
        return self.read(_NOTE)

    def read(self, name: str) -> dict[str, Any]:
        """The content of a file of our own; empty if the file is missing, or was cut off by a crash before its first byte."""
        text = self.files.read(f"{self.folder}/{name}")
        try:
            content = json.loads(text or "{}")
        except ValueError as problem:
            raise UserError(f"{self.folder}/{name} is not JSON: {problem}") from problem
        if not isinstance(content, dict):
            raise UserError(f"{self.folder}/{name} is not JSON with names and values: it is damaged")
        if content.get("version", _NOTE_VERSION) > _NOTE_VERSION:
            raise UserError(
                f"the checkpoint {self.folder} has version {content['version']}, this Ottla reads up to {_NOTE_VERSION}: "
                "upgrade Ottla, or use other --checkpoints"
            )
        return content

    def write(self, name: str, **facts: Any) -> None:
        self.files.write(f"{self.folder}/{name}", json.dumps({"version": _NOTE_VERSION, **facts}))

    def noted(self, **facts: Any) -> dict[str, Any]:
        """Our note, written with these facts by the first driver of the checkpoint."""
        path, text = f"{self.folder}/{_NOTE}", json.dumps({"version": _NOTE_VERSION, **facts})
        if not self.files.create(path, text) and not self.note():
            self.files.write(path, text)  # a driver died before it had written the file that it made
        return self.note()

    def note_finished(self, queries: Iterable[str]) -> None:
        """A run over everything that was there (`--once`, a backfill) has come to the end of all these queries."""
        self.write(_FINISHED, queries=sorted(queries))

    def finished(self) -> set[str]:
        """The queries that such a run has ended."""
        return set(self.read(_FINISHED).get("queries", ()))

    def queries(self) -> list[str]:
        names = [name for name in self.files.names(self.folder) if name not in _OWN_FILES and not name.startswith(".")]
        return [name for name in names if self.files.names(f"{self.folder}/{name}")]

    def query_id(self, query: str) -> str | None:
        """The id that the query keeps for as long as its checkpoint exists; None before its first start."""
        text = self.files.read(f"{self.folder}/{query}/metadata")
        try:
            return None if text is None else str(json.loads(text)["id"])
        except (ValueError, KeyError) as problem:
            raise UserError(f"the checkpoint {self.folder}/{query} does not name its query: {problem}") from problem

    def last_offsets(self, query: str) -> list[dict[str, Any]]:
        """The positions of each input after the last planned batch, as Spark's offset log has them."""
        batch = self.last_batch(query)
        return [] if batch is None else self.offsets(query, batch)

    def last_batch(self, query: str) -> int | None:
        return last_batch(self.files, f"{self.folder}/{query}")

    def planned_ms(self, query: str, batch_id: int) -> int | None:
        return planned_ms(self.files, f"{self.folder}/{query}", batch_id)

    def offsets(self, query: str, batch_id: int) -> list[dict[str, Any]]:
        path = f"{self.folder}/{query}/offsets/{batch_id}"
        text = self.files.read(path) or ""
        try:
            return [json.loads(line) for line in text.splitlines()[2:] if line.startswith("{")]
        except ValueError as problem:
            raise UserError(f"the positions in {path} are damaged: {problem}") from problem

    def sweep(self) -> None:
        """Removes the half-written file of a driver that died while it planned its first batch.

        Spark does not start beside such a file. If no batch was planned completely, the folder holds nothing else.
        """
        for query in self.queries():
            offsets = f"{self.folder}/{query}/offsets"
            names = self.files.names(offsets)
            if names and not any(name.isdigit() for name in names):
                self.files.remove(offsets)
