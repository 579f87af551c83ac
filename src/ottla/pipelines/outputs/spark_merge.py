"""Upserts by Spark's own MERGE: all tasks of the session merge, and a batch has no bound.

A session can do so if it has the jar of the table format and the format's own settings. The extension is in
`spark.sql.extensions`, and the catalog in `spark.sql.catalog.NAME`. Delta's catalog is `spark_catalog`; an Iceberg port names
its own in the property `spark-catalog`. Any other session merges in one task (delta.py, iceberg.py).

The marker is that of the other way, so a query may change from one to the other between two batches:

- Delta: the application transaction of the same commit. Delta skips a MERGE whose version is there.
- Iceberg: `ottla.version.APPLICATION` in the snapshot, then also as a property of the table, which outlives the snapshot.

Rows are read before the merge, and executors keep them. A merge reads its source twice, and a merge that is there already
reads nothing, but a query with state must read the rows of each batch once. Iceberg also refuses a source whose plan numbers rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, NullType, StructField, StructType

from ottla.connect.locations import locate
from ottla.connect.sinks.base import DELETED, Work, null_key_error
from ottla.pipelines.codecs import column_name
from ottla.pipelines.ports import SPARK_CATALOG, Delta, Iceberg

_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
_MARKER = "ottla.version."


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    kind: str
    name: str
    """As SQL names it."""
    keys: Sequence[str]
    partition_by: Sequence[str]


def merge_target(session: SparkSession, port: Delta | Iceberg) -> MergeTarget | None:
    """None if the session cannot merge into this table."""
    if isinstance(port, Delta):
        if not _is_set_up(session, _DELTA, "spark_catalog"):
            return None
        location = locate(port.path)
        path = f"file:{location.uri}" if location.is_local else location.uri.replace("s3://", "s3a://", 1)
        name = f"delta.{column_name(path)}"
        return MergeTarget(kind="delta", name=name, keys=port.keys, partition_by=port.partition_by)
    catalog = port.catalog.get(SPARK_CATALOG)
    if catalog is None or not _is_set_up(session, _ICEBERG, catalog):
        return None
    name = ".".join(map(column_name, [catalog, *port.table.split(".")]))
    return MergeTarget(kind="iceberg", name=name, keys=port.keys, partition_by=port.partition_by)


def merge_in_spark(rows: DataFrame, target: MergeTarget, work: Work) -> None:
    """`rows` has one row for each key, and perhaps DELETED."""
    kept = rows.localCheckpoint(eager=True)
    try:
        if target.kind == "iceberg" and has_null_keys(kept, target.keys):
            raise null_key_error(f"the table {target.name}", target.keys)
        stored = [field for field in rows.schema if field.name != DELETED and not isinstance(field.dataType, NullType)]
        columns = StructType([StructField(field.name, field.dataType) for field in stored])
        _bring_columns(rows.sparkSession, target, columns)
        if target.kind == "delta":
            _merge_delta(kept, target, work, columns.names)
        else:
            _merge_iceberg(kept, target, work, columns.names)
    finally:
        _release(kept)


def has_null_keys(rows: DataFrame, keys: Sequence[str]) -> bool:
    """Runs the plan of the rows up to the first such row."""
    return rows.where(" or ".join(f"{column_name(name)} is null" for name in keys)).limit(1).count() > 0


def _merge_delta(rows: DataFrame, target: MergeTarget, work: Work, columns: Sequence[str]) -> None:
    settings = {
        "spark.databricks.delta.write.txnAppId": work.application,
        "spark.databricks.delta.write.txnVersion": str(work.version),
        "spark.databricks.delta.commitInfo.userMetadata": json.dumps(dict(work.note)),
    }
    _merge(rows, target, settings, columns)


def _merge_iceberg(rows: DataFrame, target: MergeTarget, work: Work, columns: Sequence[str]) -> None:
    session, marker = rows.sparkSession, f"{_MARKER}{work.application}"
    last = _iceberg_version(session, target, marker)
    if last is None or last < work.version:
        notes = {marker: str(work.version), **work.note}
        _merge(rows, target, {f"{_SNAPSHOT_PROPERTY}{key}": value for key, value in notes.items()}, columns)
        session.sql(f"alter table {target.name} set tblproperties ({_text(marker)} = '{work.version}')")


def _iceberg_version(session: SparkSession, target: MergeTarget, marker: str) -> int | None:
    session.sql(f"refresh table {target.name}")  # Spark's catalog keeps what it read for 30 s
    snapshots = f"select max(cast(summary[{_text(marker)}] as bigint)) from {target.name}.snapshots"  # noqa: S608 - quoted names
    versions = [session.sql(snapshots).collect()[0][0]]
    properties = session.sql(f"show tblproperties {target.name}").collect()
    versions += [int(row["value"]) for row in properties if row["key"] == marker]
    return max((version for version in versions if version is not None), default=None)


def _merge(rows: DataFrame, target: MergeTarget, settings: Mapping[str, str], columns: Sequence[str]) -> None:
    session, view = rows.sparkSession, f"ottla_merge_{uuid.uuid4().hex}"
    deletes = DELETED in rows.columns and isinstance(rows.schema[DELETED].dataType, BooleanType)
    rows.createOrReplaceTempView(view)
    try:
        with _session_settings(session, settings):
            session.sql(merge_statement(target, view, columns, deletes=deletes)).collect()
    finally:
        session.catalog.dropTempView(view)


def merge_statement(target: MergeTarget, source: str, columns: Sequence[str], *, deletes: bool) -> str:
    names = {name: column_name(name) for name in columns}
    same = " and ".join(f"t.{names[key]} <=> s.{names[key]}" for key in target.keys)
    sets = ", ".join(f"t.{names[name]} = s.{names[name]}" for name in columns if name not in target.keys)
    listed, values = ", ".join(names.values()), ", ".join(f"s.{name}" for name in names.values())
    lines = [f"merge into {target.name} as t using {source} as s on {same}"]
    if deletes:
        lines.append(f"when matched and s.{DELETED} then delete")
    if sets:
        lines.append(f"when matched then update set {sets}")
    new = f" and not coalesce(s.{DELETED}, false)" if deletes else ""
    lines.append(f"when not matched{new} then insert ({listed}) values ({values})")  # noqa: S608 - quoted names
    return "\n".join(lines)


def _bring_columns(session: SparkSession, target: MergeTarget, columns: StructType) -> None:
    """Creates the table if it is missing, and adds the columns of the rows that the table lacks."""
    there = _columns_of(session, target)
    if there is None:
        empty = session.createDataFrame([], columns)
        writer: Any = empty.writeTo(target.name).using(target.kind)
        if target.partition_by:
            first, *others = [empty[column_name(name)] for name in target.partition_by]
            writer = writer.partitionedBy(first, *others)
        try:
            writer.create()
        except AnalysisException:  # perhaps a different query was faster
            there = _columns_of(session, target)
            if there is None:
                raise
    missing = [field for field in columns if there is not None and field.name not in there.names]
    if missing:
        session.sql(f"alter table {target.name} add columns ({StructType(missing).toDDL()})")


def _columns_of(session: SparkSession, target: MergeTarget) -> StructType | None:
    try:
        return session.table(target.name).schema
    except AnalysisException:
        return None


def _is_set_up(session: SparkSession, extension: str, catalog: str) -> bool:
    extensions = (session.conf.get("spark.sql.extensions", "") or "").split(",")
    implementation = session.conf.get(f"spark.sql.catalog.{catalog}", "") or ""
    return extension in [name.strip() for name in extensions] and implementation not in {"", "builtin"}


def _release(kept: DataFrame) -> None:
    """Spark would keep the rows until the JVM collects its garbage. A Spark Connect server releases them with the frame."""
    from pyspark.sql.utils import is_remote

    if not is_remote():
        kept._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001 - PySpark's only way to these rows


@contextmanager
def _session_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """A streaming query has a session of its own, so no other query sees these settings."""
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            session.conf.unset(key)


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
