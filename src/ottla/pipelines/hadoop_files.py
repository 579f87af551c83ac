"""Files of checkpoints on any file system that Hadoop opens (hdfs, s3a, gs, abfs), through the JVM of the session (py4j)."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import joined_parts, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHOLE_OBJECTS = ("s3a", "gs", "oci", "cosn", "oss")
"""An object of these stores is seen when it is closed, and a rename would be a copy and a removal."""
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoAwsCredentials", "Forbidden", "403")


class HadoopFiles:
    """A write replaces a file at once: readers and a crash see the old content or the new. S3 and stores like it show an object
    when it is closed, so the file is written in place. Other file systems show a file while it is written: the content goes
    to a second name, and a rename replaces the file. HDFS and ABFS with a hierarchical namespace rename in one step.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to Hadoop
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - as above
        self._conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        try:
            self._system = self._path(root).getFileSystem(self._conf)
            self._system.exists(self._path(root))
        except Exception as problem:  # py4j passes on whatever a connector's class raises
            raise UserError(_unreachable(root, problem)) from problem

    def read(self, path: str) -> str | None:
        place = self._path(path)
        if not self._system.exists(place):
            return None
        if self._is_folder(path):
            return joined_parts(self, path)
        stream = self._system.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        place = self._path(path)
        if not self._system.exists(place):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(place))

    def create(self, path: str, text: str) -> bool:
        # Atomic on HDFS and local disks. S3A checks first and then writes: two first starts at the same moment may both pass.
        if self._system.exists(self._path(path)):
            return False
        self._write(path, text, overwrite=False)
        return True

    def write(self, path: str, text: str) -> None:
        if scheme_of(path) in _WHOLE_OBJECTS:
            self._write(path, text, overwrite=True)
            return
        if self._is_folder(path):  # of a Spark Connect client
            self.remove(path)
        folder, _, name = path.rpartition("/")
        fresh = f"{folder}/.{name}.{uuid.uuid4().hex}.new"
        try:
            self._write(fresh, text, overwrite=False)
            self._replace(fresh, path)
        except UserError:
            with suppress(Exception):  # the first error counts
                self.remove(fresh)
            raise

    def _is_folder(self, path: str) -> bool:
        place = self._path(path)
        return bool(self._system.exists(place) and self._system.getFileStatus(place).isDirectory())

    def _replace(self, source: str, target: str) -> None:
        """FileSystem.rename has no public form that replaces a file; FileContext has one, which Spark's own logs use."""
        hadoop = self._jvm.org.apache.hadoop.fs
        rename = getattr(hadoop, "Options$Rename")
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        try:
            context = hadoop.FileContext.getFileContext(self._path(target).toUri(), self._conf)
            context.rename(self._path(source), self._path(target), options)
        except Exception as problem:  # py4j passes on whatever a connector's class raises
            raise UserError(_unreachable(target, problem)) from problem

    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def _write(self, path: str, text: str, *, overwrite: bool) -> None:
        try:
            stream = self._system.create(self._path(path), overwrite)
            stream.write(bytearray(text.encode()))
            stream.close()
        except Exception as problem:  # py4j passes on whatever a connector's class raises
            raise UserError(_unreachable(path, problem)) from problem

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)


def _unreachable(location: str, problem: Exception) -> str:
    scheme = scheme_of(location)
    cause = getattr(problem, "java_exception", None)
    reason = str(cause if cause is not None else problem).splitlines()[0]
    if "No FileSystem for scheme" in reason:
        return f"the checkpoints {location} have the unknown scheme {scheme}: use a local path, s3a, gs, abfs or hdfs"
    if "ClassNotFoundException" in reason:
        return (
            f"the checkpoints {location} need the jar of Hadoop's {scheme} file system: add it with "
            "--conf spark.jars.packages=GROUP:NAME:VERSION (s3a: org.apache.hadoop:hadoop-aws)"
        )
    if "UnknownStoreException" in reason or "NoSuchBucket" in reason:
        return f"the bucket of the checkpoints {location} does not exist: create it, or correct --checkpoints"
    if any(words in reason for words in _REFUSED):
        return (
            f"the store of the checkpoints {location} refuses the login: check its settings "
            f"(s3a: --conf spark.hadoop.fs.s3a.access.key=... and spark.hadoop.fs.s3a.secret.key=...)"
        )
    return f"the checkpoints {location} cannot be reached: {reason}"
