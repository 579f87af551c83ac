"""What a step reads and writes, as plain values: declaring them touches no broker and no Spark.

`topic(...)` is a port of both kinds. A port has a `node` name in the graph, and `renamed(suffix)` gives the port that a
backfill writes beside the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

FILE_FORMATS = ("parquet", "json", "csv")
REFRESHES = ("start", "batch")
_OF_THE_PIPELINE = ("txnappid", "txnversion", "newversion", "exactlyonce", "checkpointlocation", "topic", "subscribe")
"""Options by which outputs know a repeated batch, and topics: a value from outside would mix the batches of two queries."""
FORMATS = ("bytes", "text", "json", "csv", "avro", "protobuf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How a value is written: `schema` is a Spark DDL string (json, csv), Avro's JSON, or `module:Message` (protobuf)."""

    kind: str
    schema: str | None = None
    registry: str | None = None
    """A Confluent-compatible schema registry; without it Avro and Protobuf carry no schema id."""
    subject: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    @property
    def node(self) -> str:
        raise TypeError(f"{type(self).__name__} has no name")

    def renamed(self, suffix: str) -> Self:
        raise TypeError(f"{type(self).__name__} cannot be the output of a backfill{suffix and ''}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic(Port):
    name: str
    value: Format = Format(kind="bytes")
    key: str | None = None
    """Output: the column that becomes the record's key."""
    starting: str = "earliest"
    dead_letter: str | None = None
    """Where records go that cannot be decoded; without it such a record stops the step and is named."""
    partitions: int | None = None
    compacted: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        return f"topic:{self.name}"

    def renamed(self, suffix: str) -> Self:
        return replace(self, name=self.name + suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTable(Port):
    """A compacted topic as a table: the newest value of each key, without those whose newest value is a tombstone."""

    topic: Topic
    changes: bool = False
    """The stream of the table's changes, for the joins that keep the table as state; else its rows, as one DataFrame."""

    @property
    def node(self) -> str:
        return self.topic.node


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta(Port):
    path: str
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        return f"delta:{self.path}"

    def renamed(self, suffix: str) -> Self:
        return replace(self, path=self.path.rstrip("/") + suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(Port):
    """Parquet, JSON or CSV files in a folder."""

    path: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        return f"{self.format}:{self.path}"

    def renamed(self, suffix: str) -> Self:
        return replace(self, path=self.path.rstrip("/") + suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iceberg(Port):
    table: str
    """NAMESPACE.NAME."""
    catalog: Mapping[str, str] = field(default_factory=dict)
    """Properties of pyiceberg: uri, warehouse, type ..."""
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        return f"iceberg:{self.table}"

    def renamed(self, suffix: str) -> Self:
        return replace(self, table=self.table + suffix.replace("-", "_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable(Port):
    """Any data source of Spark. Input: as often as the source reads again; output: `txnAppId` and `txnVersion` are set."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        place = next((self.options[name] for name in ("path", "dbtable", "table") if name in self.options), "")
        return f"{self.format}:{place}"

    def renamed(self, suffix: str) -> Self:
        options = dict(self.options)
        if "path" in options:
            options["path"] = options["path"].rstrip("/") + suffix
            return replace(self, options=options)
        for name in ("dbtable", "table"):
            if name in options:
                options[name] += suffix.replace("-", "_")
                return replace(self, options=options)
        raise TypeError(f"a backfill cannot name another {self.format}: its options have no path, dbtable or table")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTable(Port):
    """Output: inserted or, with `keys`, upserted."""

    uri: str = field(repr=False)
    table: str
    keys: tuple[str, ...] = ()
    refresh: str = "start"
    """Input: `start` reads the table once, through the driver's memory; `batch` reads the table on executors in every
    micro-batch, in ranges of `split_by` or of the primary key."""
    split_by: str | None = None
    staging_schema: str | None = None
    """Output: PostgreSQL's schema for staging tables; that of the table if missing."""

    @property
    def node(self) -> str:
        return f"sql:{self.table}"

    def renamed(self, suffix: str) -> Self:
        return replace(self, table=self.table + suffix.replace("-", "_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Port):
    """A materialized view: a compacted topic and a Delta table that hold the same rows, by key."""

    topic: Topic
    delta: Delta

    @property
    def node(self) -> str:
        return f"view:{self.topic.name}"

    def topic_with_key(self, key: str) -> Topic:
        return replace(self.topic, key=key)

    def renamed(self, suffix: str) -> Self:
        return replace(self, topic=self.topic.renamed(suffix), delta=self.delta.renamed(suffix))


def _format(value: str | Format, schema: str | None, registry: str | None) -> Format:
    made = value if isinstance(value, Format) else Format(kind=value, schema=schema, registry=registry)
    if made.kind not in FORMATS:
        raise ValueError(f"a value is one of {', '.join(FORMATS)}, not {made.kind!r}")
    return made


def topic(
    name: str,
    *,
    value: str | Format = "bytes",
    schema: str | None = None,
    registry: str | None = None,
    key: str | None = None,
    starting: str = "earliest",
    dead_letter: str | None = None,
    partitions: int | None = None,
    compacted: bool = False,
    options: Mapping[str, str] | None = None,
) -> Topic:
    reserved = [option for option in options or () if option.lower() in _OF_THE_PIPELINE]
    if reserved:
        raise ValueError(f"the option {reserved[0]} of the topic {name} is set by the pipeline itself: leave it out")
    return Topic(
        name=name,
        value=_format(value, schema, registry),
        key=key,
        starting=starting,
        dead_letter=dead_letter,
        partitions=partitions,
        compacted=compacted,
        options=dict(options or {}),
    )


def table_of(source: Topic) -> TopicTable:
    return TopicTable(topic=source)


def changes_of(source: Topic) -> TopicTable:
    return TopicTable(topic=source, changes=True)


def delta(path: str, *, keys: Sequence[str] = (), partition_by: Sequence[str] = ()) -> Delta:
    return Delta(path=path, keys=tuple(keys), partition_by=tuple(partition_by))


def parquet(path: str, *, partition_by: Sequence[str] = ()) -> Files:
    return files(path, format="parquet", partition_by=partition_by)


def files(path: str, *, format: str = "parquet", partition_by: Sequence[str] = ()) -> Files:  # noqa: A002 - Spark's word
    if format not in FILE_FORMATS:
        raise ValueError(f"files are one of {', '.join(FILE_FORMATS)}, not {format!r}")
    return Files(path=path, format=format, partition_by=tuple(partition_by))


def iceberg(
    table: str, *, catalog: Mapping[str, str], keys: Sequence[str] = (), partition_by: Sequence[str] = ()
) -> Iceberg:
    return Iceberg(table=table, catalog=dict(catalog), keys=tuple(keys), partition_by=tuple(partition_by))


def spark_table(format: str, options: Mapping[str, str] | None = None) -> SparkTable:  # noqa: A002 - Spark's word
    return SparkTable(format=format, options=dict(options or {}))


def sql_table(
    uri: str,
    table: str,
    *,
    keys: Sequence[str] = (),
    refresh: str = "start",
    split_by: str | None = None,
    staging_schema: str | None = None,
) -> SqlTable:
    if refresh not in REFRESHES:
        raise ValueError(f"refresh is one of {', '.join(REFRESHES)}, not {refresh!r}")
    return SqlTable(
        uri=uri, table=table, keys=tuple(keys), refresh=refresh, split_by=split_by, staging_schema=staging_schema
    )


def view(name: str, path: str, *, keys: Sequence[str], partitions: int | None = None) -> View:
    if len(keys) < 1:
        raise ValueError("a view needs the columns of its key")
    return View(
        topic=Topic(
            name=name,
            value=Format(kind="json"),
            key=keys[0] if len(keys) == 1 else None,
            compacted=True,
            partitions=partitions,
        ),
        delta=delta(path, keys=keys),
    )
