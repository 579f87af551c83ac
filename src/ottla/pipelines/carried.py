"""Functions and classes that hold Ottla themselves, for the processes of a Spark Connect server that get no files.

Spark 4.3 sends the files of a session to tasks and to the processes that plan and commit. These processes do not find the files:

- the planner of a streaming Python source, and the tasks that read such a source
- the commit of a streaming write, the process of foreachBatch, and the process that declares states

What is defined inside of the functions here is pickled by value, and unpacks the zip before it imports anything of Ottla. The
tasks of a streaming query search for the files by themselves (`search_session_files`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.pipelines.shipping import own_zip

_SEARCHED = "ottla_files"


def carried_function(function: Callable[..., None]) -> Callable[..., None]:
    """For foreachBatch."""
    from pyspark.cloudpickle import dumps

    unpack, content = _unpacker(), dumps(function)  # type: ignore[no-untyped-call]

    unpacked: list[Callable[..., None]] = []

    def call(*values: Any) -> None:
        from pyspark.cloudpickle import loads

        unpack()
        if not unpacked:  # the function counts the batches that it has seen
            unpacked.append(loads(content))
        unpacked[0](*values)

    return call


def carried_source(plain: type[DataSource]) -> type[DataSource]:
    """A format of ours. What Spark sends to tasks and to the commit, the readers and writers, unpacks the zip, too."""
    from pyspark.cloudpickle import dumps

    unpack, content = _unpacker(), dumps(plain)  # type: ignore[no-untyped-call]
    format_name = plain.name()

    def restore(content: bytes) -> Any:
        from pyspark.cloudpickle import loads

        unpack()
        return loads(content)

    def portable(value: Any) -> Any:
        kind = type(value)

        class Portable(kind):  # type: ignore[misc, valid-type]
            def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
                from pyspark.cloudpickle import dumps

                plain = object.__new__(kind)
                plain.__dict__.update(self.__dict__)
                return restore, (dumps(plain),)  # type: ignore[no-untyped-call]

        value.__class__ = Portable
        return value

    class CarriedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType | str:
            return self._source().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            reader: DataSourceReader = portable(self._source().reader(schema))
            return reader

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            reader: DataSourceStreamReader = portable(self._source().streamReader(schema))
            return reader

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
            writer: DataSourceWriter = portable(self._source().writer(schema, overwrite))
            return writer

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - as above
            writer: DataSourceStreamWriter = portable(self._source().streamWriter(schema, overwrite))
            return writer

        def _source(self) -> DataSource:
            source: DataSource = restore(content)(self.options)
            return source

    return CarriedSource


def carried_processor(processor: Any) -> Any:
    """For transformWithState."""
    from pyspark.cloudpickle import dumps
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    unpack, content = _unpacker(), dumps(processor)  # type: ignore[no-untyped-call]

    class CarriedProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            from pyspark.cloudpickle import loads

            unpack()
            self._processor = loads(content)
            self._processor.init(handle)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's
            results: Iterator[Any] = self._processor.handleInputRows(key, rows, timerValues)
            return results

        def close(self) -> None:
            self._processor.close()

    return CarriedProcessor()


def search_session_files(names: Iterable[str]) -> None:
    """Every function and class that this Spark Connect client sends from now on finds the files of the session by itself.

        Spark 4.3 plans a streaming query without the session's artifacts. The Python workers of its tasks look for the files one
    folder too high: in FILES/NAME instead of FILES/SESSION/NAME. PySpark pickles all that a client sends in one method.
    """
    from pyspark.serializers import CloudPickleSerializer

    plain = CloudPickleSerializer.dumps
    before = getattr(plain, _SEARCHED, ())
    searched = tuple(dict.fromkeys((*before, *names)))
    plain = getattr(plain, "__wrapped__", plain)

    def restore(content: bytes, names: tuple[str, ...]) -> Any:
        import importlib
        import os
        import sys

        from pyspark import SparkFiles
        from pyspark.cloudpickle import loads

        missing = {
            name for name in names if not any(os.path.isfile(path) for path in sys.path if path.endswith(f"/{name}"))
        }
        root = SparkFiles._root_directory or ""  # noqa: SLF001 - of the worker, which set it
        for folder in (root, os.path.dirname(root)) if missing and root else ():
            for session in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                paths = {name: os.path.join(folder, session, name) for name in missing}
                there = [name for name, path in paths.items() if os.path.isfile(path)]
                sys.path[1:1] = [
                    os.path.dirname(paths[name]) if name.endswith(".py") else paths[name] for name in there
                ]
                missing -= set(there)
        importlib.invalidate_caches()
        return loads(content)

    class Sent:
        def __init__(self, content: bytes) -> None:
            self._content = content

        def __reduce__(self) -> tuple[Callable[[bytes, tuple[str, ...]], Any], tuple[bytes, tuple[str, ...]]]:
            return restore, (self._content, searched)

    @functools.wraps(plain)
    def dumps(serializer: CloudPickleSerializer, value: Any) -> bytes:
        return bytes(plain(serializer, Sent(plain(serializer, value))))

    setattr(dumps, _SEARCHED, searched)
    CloudPickleSerializer.dumps = dumps  # type: ignore[method-assign]


def _unpacker() -> Callable[[], None]:
    """Makes Ottla importable where it is not: from a zip in a folder of the process's user."""
    path = own_zip()
    with open(path, "rb") as file:
        name, content = os.path.basename(path), file.read()

    def unpack() -> None:
        import importlib.util
        import os
        import stat
        import sys
        import tempfile

        if importlib.util.find_spec("ottla") is not None:
            return
        folder = os.path.join(tempfile.gettempdir(), f"ottla-carried-{os.getuid()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{folder} is not a folder that only this user can write: remove it")
        target = os.path.join(folder, name)
        if not os.path.exists(target):
            with open(f"{target}.{os.getpid()}", "wb") as file:
                file.write(content)
            os.replace(f"{target}.{os.getpid()}", target)
        sys.path.append(target)
        importlib.invalidate_caches()

    return unpack
