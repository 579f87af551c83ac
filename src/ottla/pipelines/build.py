"""From ports to DataFrames and from DataFrames to streaming queries, for one step at a time.

An input topic gives the fields of its value and, beside them, `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`
(and `_headers`). An output topic takes all columns that do not begin with an underscore; `_deleted` makes a tombstone
and `_headers` the headers. Every output is exactly once: topics by transactions, tables by the id of query and batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType, VariantType
from pyspark.sql.utils import is_remote

from ottla.connect.sinks.base import DELETED, Work, null_key_error
from ottla.model.user_error import UserError
from ottla.pipelines.carried import carried_function
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles, is_object_store, open_driver_files, spark_location
from ottla.pipelines.codecs import column_name, decoded, encoded
from ottla.pipelines.content import IDENTITY
from ottla.pipelines.options import PINS
from ottla.pipelines.outputs.batch import newest_of_each, write_table
from ottla.pipelines.outputs.spark_merge import has_null_keys
from ottla.pipelines.pipeline import Step
from ottla.pipelines.ports import Delta, Port, SparkTable, SqlTable, Topic, TopicTable, View
from ottla.pipelines.positions import RESERVED_KEY
from ottla.pipelines.topic_tables import changes as table_changes
from ottla.pipelines.topic_tables import newest_rows
from ottla.pipelines.unfinished import UNFINISHED

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

MAX_OFFSETS_PER_TRIGGER = 5_000_000
"""5 GB of records of 1 KB: 20 s at the 249 MB/s that docs/pipeline-figures.md has for two cores. A batch's fixed second costs 5 %.
A slow step of 20,000 rows/s needs 250 s."""
_META = ("topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    bootstrap_servers: str
    checkpoints: str
    client: Mapping[str, str] = field(default_factory=dict)
    """More client settings under Kafka's names: security.protocol, sasl.jaas.config ..."""
    exactly_once: bool = True
    source_format: str = "ottla"
    """`kafka` reads and writes with Spark's own connector instead (its jar must be there)."""
    path: str | None = None
    """A log directory to read inputs from, without a broker (backfills)."""
    starting: Mapping[str, str] = field(default_factory=dict)
    """Options that replace where inputs begin: startingOffsets, startingTimestamp ..."""
    max_offsets_per_trigger: int | None = None
    """None stands for MAX_OFFSETS_PER_TRIGGER, 0 for no limit."""
    made_here: frozenset[str] = frozenset()
    """Topics that a backfill writes itself: they are read from the broker and from their beginning."""

    def checkpoint_of(self, name: str) -> str:
        """The folder of a pipeline, or of a query (PIPELINE/QUERY)."""
        return f"{self.checkpoints}/{name}"

    def client_options(self) -> dict[str, str]:
        client_settings = {"bootstrap.servers": self.bootstrap_servers, **self.client}
        return {f"kafka.{name}": value for name, value in client_settings.items()}


def input_frame(spark: SparkSession, port: Port, settings: RunSettings, pins: str | None = None) -> DataFrame:
    """`pins` is the folder of the query's checkpoint where a global table's ends are fixed for each batch."""
    if isinstance(port, Topic):
        return good_rows(decoded_topic(spark, port, settings), port)
    if isinstance(port, TopicTable):
        return _topic_table(spark, port, settings, pins)
    if isinstance(port, Delta):
        from ottla.connect.sinks.delta import read_delta

        return spark.createDataFrame(read_delta(port.path)[0])
    if isinstance(port, SqlTable):
        return _sql_frame(spark, port)
    if isinstance(port, View):
        return input_frame(spark, port.delta, settings)
    if isinstance(port, SparkTable):
        return spark.read.format(port.format).options(**port.options).load()
    raise UserError(f"{port.node} cannot be read by a step")


def _sql_frame(spark: SparkSession, port: SqlTable) -> DataFrame:
    from ottla.pipelines.outputs.sql import make_input

    options = {"url": port.uri, "dbtable": port.table}
    if port.refresh == "start":
        return spark.createDataFrame(make_input(options).read())
    if port.split_by:
        options["partitionColumn"] = port.split_by
    return spark.read.format("ottla-sql").options(**options).load()


def _topic_table(spark: SparkSession, port: TopicTable, settings: RunSettings, pins: str | None) -> DataFrame:
    """A table is read from its beginning, and as a stream in one batch: rows would join a table that is half there."""
    whole = replace(settings, starting={}, max_offsets_per_trigger=0)
    pinned = {PINS: pins} if pins is not None and settings.source_format == "ottla" else {}
    source = replace(port.topic, options={**port.topic.options, **pinned})
    records = decoded_topic(spark, source, whole, streaming=port.changes)
    if port.topic.dead_letter is None:
        records = _without_bad(records)
    return table_changes(records) if port.changes else newest_rows(records)


def decoded_topic(spark: SparkSession, port: Topic, settings: RunSettings, *, streaming: bool = True) -> DataFrame:
    """The records with `value` decoded and `error`."""
    return decoded(topic_records(spark, port, settings, streaming=streaming), port.value, f"{port.name}-value")


def topic_records(spark: SparkSession, port: Topic, settings: RunSettings, *, streaming: bool = True) -> DataFrame:
    """The records with the value also as `raw`."""
    reader = spark.readStream if streaming else spark.read
    options = topic_options(port, settings, streaming=streaming)
    return reader.format(settings.source_format).options(**options).load().withColumn("raw", F.col("value"))


def topic_options(port: Topic, settings: RunSettings, *, streaming: bool = True) -> dict[str, str]:
    """Of a read."""
    options = {
        "subscribe": port.name,
        "startingOffsets": port.starting,
        "includeHeaders": "true",
        **settings.client_options(),
    }
    if streaming and (most := _most_offsets(port, settings)):
        options["maxOffsetsPerTrigger"] = str(most)
    options["kafka.isolation.level"] = "read_committed"
    if settings.starting and streaming and port.name not in settings.made_here:
        options.pop("startingOffsets")
        options |= _starting(settings.starting, port.name)
    if settings.path and port.name not in settings.made_here:
        options["path"] = settings.path
    options |= port.options
    if not streaming:
        options["startingOffsets"] = "earliest"
    return options


def _most_offsets(port: Topic, settings: RunSettings) -> int:
    """The default gives way to a larger minOffsetsPerTrigger of the topic."""
    if settings.max_offsets_per_trigger is not None:
        return settings.max_offsets_per_trigger
    least = next((value for name, value in port.options.items() if name.lower() == "minoffsetspertrigger"), None)
    return MAX_OFFSETS_PER_TRIGGER if least is None else 0


def _starting(starting: Mapping[str, str], topic: str) -> dict[str, str]:
    """Where this topic begins: its part of the starting offsets; a topic that these do not name, at its beginning."""
    text = starting.get("startingOffsets", "")
    try:
        offsets = json.loads(text)
    except ValueError:
        return dict(starting)
    if not isinstance(offsets, dict):
        return dict(starting)
    mine = json.dumps({topic: offsets[topic]}) if topic in offsets else "earliest"
    return {**starting, "startingOffsets": mine}


def good_rows(frame: DataFrame, port: Topic) -> DataFrame:
    """Decoded rows, as columns; a row that cannot be decoded goes to the dead letters or stops the step."""
    frame = _without_bad(frame) if port.dead_letter is None else frame.where("error is null")
    kind = frame.schema["value"].dataType.typeName()
    values = [F.col("value.*")] if kind == "struct" else [F.col("value")]
    key = F.col("key").cast("string") if port.value.kind != "bytes" else F.col("key")
    return frame.select(*values, key.alias("_key"), *[F.col(name).alias(f"_{name}") for name in _META])


def _without_bad(frame: DataFrame) -> DataFrame:
    """The same rows; the first that cannot be decoded stops the query."""
    where = F.concat_ws(
        "", F.lit("bad record: "), "topic", F.lit("-"), "partition", F.lit(" offset "), "offset", F.lit(": "), "error"
    )
    return frame.where(F.when(F.col("error").isNotNull(), F.raise_error(where).cast("boolean")).otherwise(F.lit(True)))


def output_rows(frame: DataFrame, port: Topic) -> DataFrame:
    """key, value and headers of the records of an output topic."""
    value = encoded(frame, port.value, f"{port.name}-value")
    if DELETED in frame.columns:
        value = F.when(F.coalesce(F.col(DELETED), F.lit(False)), F.lit(None).cast("binary")).otherwise(value)
    columns = [value.alias("value")]
    if port.key is not None:
        if port.key not in frame.columns:
            raise UserError(
                f"the key {port.key!r} of {port.name} is not a column; there are {', '.join(frame.columns)}"
            )
        key = F.col(column_name(port.key))
        columns.append(
            (key if frame.schema[port.key].dataType.typeName() == "binary" else key.cast("string")).alias("key")
        )
    if "_headers" in frame.columns:
        columns.append(F.col("_headers").alias("headers"))
    return frame.select(*columns, *_identity(frame, port.key))


def _identity(frame: DataFrame, key: str | None) -> list[Column]:
    """What identifies a row of a repeated batch, where its value does not (content.py).

    A repeated batch may add doubles in a different order, so that a value differs in its last bit.
    """
    fields = {field.name: field.dataType for field in frame.schema if not field.name.startswith("_")}
    stable = [F.col(column_name(name)) for name, kind in fields.items() if _is_stable(kind)]
    if len(stable) == len(fields):
        return []
    identity = F.xxhash64(*stable) if stable else F.lit(0)  # of no columns: only the number of rows is compared
    if key is not None and _is_stable(frame.schema[key].dataType):
        identity = F.when(F.col(column_name(key)).isNotNull(), F.xxhash64(column_name(key))).otherwise(identity)
    return [identity.cast("string").alias(IDENTITY)]


def _is_stable(kind: DataType) -> bool:
    """Whether values of the type can be hashed, and are the same in whatever order Spark adds numbers."""
    if isinstance(kind, StructType):
        return all(_is_stable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_stable(kind.elementType)
    return not isinstance(kind, FloatType | DoubleType | MapType | VariantType)


def _topic_rows(frame: DataFrame, port: Topic, settings: RunSettings) -> DataFrame:
    """Spark's own connector has no column for the identity."""
    rows = output_rows(frame, port)
    return rows if settings.source_format == "ottla" else rows.drop(IDENTITY)


def start_output(
    frame: DataFrame, port: Port, step: Step, name: str, settings: RunSettings, *, once: bool
) -> DataStreamWriter:
    """A writer that is ready to start, with its checkpoint and trigger."""
    checkpoint = settings.checkpoint_of(name)
    if _writes_itself(port, step.output_mode, settings.source_format) and isinstance(port, Topic):
        writer = (
            _topic_rows(frame, port, settings)
            .writeStream.format(settings.source_format)
            .options(**{**settings.client_options(), **port.options, "topic": port.name})
        )
        if settings.source_format == "ottla":
            writer = writer.option("exactlyOnce", str(settings.exactly_once).lower())
    else:
        write = _batch_function(port, name, settings, checkpoint, overwrite=step.output_mode == "complete")
        writer = frame.writeStream.foreachBatch(carried_function(write) if is_remote() else write)
    writer = (
        writer.queryName(name.replace("/", "."))
        .outputMode(step.output_mode)
        .option("checkpointLocation", spark_location(checkpoint))
    )
    return writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger_of(step, settings))


def _writes_itself(port: Port, output_mode: str, source_format: str = "ottla") -> bool:
    """Spark's Python sinks accept appended rows only. Changed rows go through foreachBatch, also exactly once."""
    return isinstance(port, Topic) and (output_mode == "append" or source_format != "ottla")


def written_frame(frame: DataFrame, port: Port, output_mode: str) -> DataFrame:
    """The frame whose plan the query of an output has."""
    return output_rows(frame, port) if isinstance(port, Topic) and _writes_itself(port, output_mode) else frame


def _batch_function(
    port: Port, name: str, settings: RunSettings, checkpoint: str, *, overwrite: bool
) -> Callable[[DataFrame, int], None]:
    tried = -1

    def write(frame: DataFrame, batch_id: int) -> None:
        nonlocal tried
        folder, _, query = checkpoint.rpartition("/")
        stored = Checkpoint(open_driver_files(frame.sparkSession, folder), folder)
        application = f"{name.replace('/', '.')}-{_query_id(stored, query)}"
        note = {"ottla.batch": str(batch_id), "ottla.offsets": json.dumps(_merged(stored.offsets(query, batch_id)))}
        work = Work(application=application, version=batch_id, note=note)
        # The first batch that a process sees may be a repeated one, and a batch that failed is.
        is_new = 0 <= tried < batch_id
        planned_ms = None if is_new else stored.planned_ms(query, batch_id)
        writing = {
            UNFINISHED: "" if planned_ms is None else f"{batch_id}:{planned_ms}",
            "newVersion": str(is_new).lower(),
        }
        tried = batch_id
        if isinstance(port, Topic):
            _write_topic(_topic_rows(frame, port, settings), port, settings, work, writing)
        elif isinstance(port, View):
            _write_view(frame, port, settings, work, writing)
        else:
            write_table(frame, port, work, overwrite=overwrite)

    return write


def _write_topic(rows: DataFrame, port: Topic, settings: RunSettings, work: Work, writing: Mapping[str, str]) -> None:
    if settings.source_format != "ottla":  # Spark's own connector writes at least once
        options = {**settings.client_options(), **port.options, "topic": port.name}
        rows.write.format(settings.source_format).options(**options).save()
        return
    (
        rows.write.format("ottla")
        .options(**{**settings.client_options(), **port.options, **writing, "topic": port.name})
        .option("txnAppId", f"{work.application}-topic")
        .option("txnVersion", str(work.version))
        .option("exactlyOnce", str(settings.exactly_once).lower())
        .mode("append")
        .save()
    )


def _write_view(frame: DataFrame, port: View, settings: RunSettings, work: Work, writing: Mapping[str, str]) -> None:
    """The topic first, then the table: each skips what it has, so both end equal however often this is tried."""
    keys = list(port.delta.keys)
    newest = newest_of_each(frame, keys, f"the view {port.topic.name}").persist()
    try:
        if len(keys) == 1 and has_null_keys(newest, keys):  # it is the record's key, which a compacted topic needs
            raise null_key_error(f"the view {port.topic.name}", keys)
        key_columns = [F.col(column_name(name)) for name in keys]
        key = key_columns[0].cast("string") if len(keys) == 1 else F.to_json(F.struct(*key_columns))
        rows = _topic_rows(newest.withColumn("_view_key", key), port.topic_with_key("_view_key"), settings)
        _write_topic(rows, port.topic, settings, work, writing)
        write_table(newest, port.delta, work, overwrite=False)
    finally:
        newest.unpersist()


def trigger_of(step: Step, settings: RunSettings) -> str:
    """Each batch on an object store costs requests, also without records."""
    return step.trigger or ("10 seconds" if is_object_store(settings.checkpoints) else "1 second")


def _query_id(checkpoint: Checkpoint, query: str) -> str:
    query_id = checkpoint.query_id(query)
    if query_id is None:
        raise UserError(
            f"the checkpoint {checkpoint.folder}/{query} does not name its query: its file metadata is gone"
        )
    return query_id


def checkpoint_position(checkpoint: str) -> int:
    """The sum of the offsets that the newest batch of a local checkpoint reached: the further of two has the larger."""
    folder, _, query = checkpoint.rpartition("/")
    reached = _merged(Checkpoint(LocalFiles(), folder).last_offsets(query))
    return sum(int(offset) for parts in reached.values() for offset in parts.values())


def _merged(sources: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Where the inputs stand after a batch, by topic, from Spark's own write-ahead log."""
    merged: dict[str, Any] = {}
    for offsets in sources:
        for topic, parts in offsets.items():
            if topic != RESERVED_KEY:
                merged.setdefault(topic, {}).update(parts)
    return merged
