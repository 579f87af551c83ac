"""Whether the state in a checkpoint fits the plan of a step: what `ottla pipeline validate` reports before a query starts.

Spark itself compares operators, keys and values when it plans the first batch of a restarted query. That planning runs here,
on a copy of the state's metadata, because it also writes new metadata. No record and no state is read.

Spark compares the types of state columns and not their names. A second planning, of a new query, writes the metadata that
the step would have: its names are compared here. Otherwise a sum would go on with the values of a count.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ottla.pipelines.reasons import KEEP_OR_SWITCH, plain_reason, state_columns
from ottla.pipelines.stored_state import StoredState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METADATA = ("_metadata", "_stateSchema")
_MODES = {"append": "Append", "update": "Update", "complete": "Complete"}


def state_problem(frame: DataFrame, output_mode: str, stored: StoredState, folder: str) -> str | None:
    """Why the step cannot go on with the checkpoint `folder` of its query; None if it can, or if this PySpark cannot compare."""
    other_inputs = _other_inputs(frame, stored)
    if other_inputs is not None:
        return f"{other_inputs}: {KEEP_OR_SWITCH}"
    planner = _Planner(frame, output_mode, stored)
    with tempfile.TemporaryDirectory(prefix="ottla-state-") as copy, tempfile.TemporaryDirectory() as fresh:
        _copy_metadata(frame.sparkSession, folder, copy, stored.batch)
        # Spark reads the metadata of a batch only if the batch is planned.
        os.mkdir(f"{fresh}/offsets")
        for planned in (f"{copy}/offsets/{stored.batch + 1}", f"{fresh}/offsets/0"):
            shutil.copy(f"{copy}/offsets/{stored.batch}", planned)
        try:
            planner.plan(copy, stored.batch + 1)
            planner.plan(fresh, 0)
        except (Py4JJavaError, PySparkException) as problem:
            return plain_reason(problem)
        except (Py4JError, TypeError):  # another version of Spark plans by other classes
            return None
        return _renamed(_columns(copy), _columns(fresh))


class _Planner:
    """Spark's planning of a micro-batch, which has no other entrance than the classes of the JVM."""

    def __init__(self, frame: DataFrame, output_mode: str, stored: StoredState) -> None:
        spark: Any = frame.sparkSession
        self._session, self._jvm = spark._jsparkSession, spark._jvm  # noqa: SLF001 - as above
        self._plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
        self._mode = getattr(self._jvm.org.apache.spark.sql.streaming.OutputMode, _MODES[output_mode])()
        streaming = self._jvm.org.apache.spark.sql.execution.streaming
        self._offsets = streaming.checkpointing.OffsetSeqMetadata.apply(stored.metadata)
        self._runtime = streaming.runtime

    def plan(self, folder: str, batch: int) -> None:
        jvm = self._jvm
        empty = _object(jvm.scala.collection.mutable, "HashMap").empty
        everything = _object(jvm.org.apache.spark.sql.execution, "CommandExecutionMode").ALL()
        watermarks = _object(self._runtime, "NoOpWatermarkPropagator")
        before = jvm.scala.Some(self._offsets) if batch else jvm.scala.Option.apply(None)
        one_id = jvm.java.util.UUID.randomUUID()
        self._runtime.IncrementalExecution(
            self._session, self._plan, self._mode, f"file://{folder}/state", one_id, one_id, batch, before, self._offsets,
            watermarks, True, empty(), empty(), everything, False, False,
        ).executedPlan()  # fmt: skip


def _object(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _copy_metadata(spark: SparkSession, folder: str, target: str, batch: int) -> None:
    """What planning reads: kilobytes, also of a large state. From any file system that Spark opens."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to Hadoop
    conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
    path = jvm.org.apache.hadoop.fs.Path
    source = path(folder).getFileSystem(conf)
    local = path(f"file://{target}").getFileSystem(conf)

    def copy(name: str) -> None:
        os.makedirs(os.path.dirname(f"{target}/{name}"), exist_ok=True)
        jvm.org.apache.hadoop.fs.FileUtil.copy(
            source, path(f"{folder}/{name}"), local, path(f"file://{target}/{name}"), False, conf
        )

    def walk(name: str) -> None:
        for status in source.listStatus(path(f"{folder}/{name}")):
            child = status.getPath().getName()
            if child in _METADATA:
                copy(f"{name}/{child}")
            elif status.isDirectory() and (name == "state" or child == "0" or not child.isdigit()):
                walk(f"{name}/{child}")

    if source.exists(path(f"{folder}/state")):
        walk("state")
    copy(f"offsets/{batch}")
    if source.exists(path(f"{folder}/commits/{batch}")):
        copy(f"commits/{batch}")


def _columns(folder: str) -> dict[str, list[list[str]]]:
    """The names of the state columns by the path of their schema: of the key, then of the value."""
    return {
        os.path.relpath(os.path.join(parent, name), folder): list(_structs(os.path.join(parent, name)))
        for parent, _, names in os.walk(folder)
        for name in names
        if name == "schema" and os.path.basename(parent) == "_metadata"
    }


def _structs(path: str) -> Iterator[list[str]]:
    """Spark's schema files hold a few lengths, and each schema as JSON."""
    with open(path, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    at = text.find('{"type":"struct"')
    while at >= 0:
        struct, end = json.JSONDecoder().raw_decode(text, at)
        yield [str(field["name"]) for field in struct["fields"]]
        at = text.find('{"type":"struct"', end)


def _renamed(before: dict[str, list[list[str]]], after: dict[str, list[list[str]]]) -> str | None:
    for path in sorted(before.keys() & after.keys()):
        if before[path] != after[path]:
            return (
                f"the state of the checkpoint has {_named(before[path])}, the step would keep {_named(after[path])} there, "
                f"and Spark would go on with the old values under the new names: {KEEP_OR_SWITCH}"
            )
    return None


def _named(structs: Sequence[Sequence[str]]) -> str:
    return state_columns(structs[0], structs[1] if len(structs) > 1 else [])


def _other_inputs(frame: DataFrame, stored: StoredState) -> str | None:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - PySpark's only way to the plan
    streams = [leaf for leaf in (leaves.apply(n) for n in range(leaves.size())) if leaf.isStreaming()]
    if len(streams) != len(stored.inputs):
        return f"the checkpoint has {len(stored.inputs)} streaming inputs, the step has {len(streams)}"
    for number, (leaf, before) in enumerate(zip(streams, stored.inputs, strict=True), 1):
        now = _subscribed(leaf)
        if before and now is not None and now not in before:
            return (
                f"streaming input {number} of the checkpoint is {', '.join(sorted(before))}, that of the step is {now}"
            )
    return None


def _subscribed(leaf: Any) -> str | None:
    try:
        topic = leaf.extraOptions().get("subscribe")
    except Py4JError:
        return None
    return None if topic is None else str(topic)
