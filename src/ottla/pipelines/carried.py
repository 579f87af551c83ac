"""Functions and classes that hold Ottla themselves, for the processes of a Spark Connect server that get no files.

Spark 4.3 sends artifacts to tasks and to the processes that plan and commit. Three processes of the server get none: the one
that plans the batches of a streaming Python source, the one that runs foreachBatch, and the one that declares states. Nor do
the tasks that read such a source: Spark looks for their files outside of the session's folder. What
is defined inside of the functions here is pickled by value, and unpacks the zip before it imports anything of Ottla.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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


def carried_source() -> type[DataSource]:
    """`format("ottla")`."""
    unpack = _unpacker()

    def restore(content: bytes) -> DataSourceStreamReader:
        from pyspark.cloudpickle import loads

        unpack()
        kind, state = loads(content)
        reader: DataSourceStreamReader = kind.__new__(kind)
        reader.__dict__.update(state)
        return reader

    def portable(reader: DataSourceStreamReader) -> DataSourceStreamReader:
        kind = type(reader)

        class Portable(kind):  # type: ignore[misc, valid-type]
            def __reduce__(self) -> tuple[Callable[[bytes], DataSourceStreamReader], tuple[bytes]]:
                from pyspark.cloudpickle import dumps

                return restore, (dumps((kind, self.__getstate__())),)  # type: ignore[no-untyped-call]

        reader.__class__ = Portable
        return reader

    class CarriedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ottla"

        def schema(self) -> StructType | str:
            return self._source().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return self._source().reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            return portable(self._source().streamReader(schema))

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - as above
            return self._source().streamWriter(schema, overwrite)

        def _source(self) -> DataSource:
            unpack()
            from ottla.pipelines.datasource import OttlaDataSource

            return OttlaDataSource(self.options)

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
