"""From ports to DataFrames and from DataFrames to streaming queries, for one step at a time.

An input topic gives the fields of its value and, beside them, `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`
(and `_headers`). An output topic takes all columns that do not begin with an underscore; `_deleted` makes a tombstone
and `_headers` the headers. Every output is exactly once: topics by transactions, tables by the id of query and batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.utils import is_remote

from ottla.model.user_error import UserError
from ottla.pipelines.batch_writes import batch_function, topic_write_options
from ottla.pipelines.carried import carried_function
from ottla.pipelines.checked_rows import FAILED
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles, is_object_store, spark_location
from ottla.pipelines.codecs import decoded
from ottla.pipelines.expectations import expectations_of
from ottla.pipelines.options import PINS
from ottla.pipelines.pipeline import Step
from ottla.pipelines.ports import Delta, Port, SparkTable, SqlTable, Topic, TopicTable, View
from ottla.pipelines.positions import merged_offsets
from ottla.pipelines.topic_rows import output_rows, topic_rows
from ottla.pipelines.topic_tables import changes as table_changes
from ottla.pipelines.topic_tables import newest_rows

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


def start_output(
    frame: DataFrame, port: Port, step: Step, name: str, settings: RunSettings, *, once: bool
) -> DataStreamWriter:
    """A writer that is ready to start, with its checkpoint and trigger."""
    checkpoint = settings.checkpoint_of(name)
    quarantine = step.quarantine if FAILED in frame.columns else None
    if _writes_itself(port, step.output_mode, settings.source_format) and isinstance(port, Topic):
        rows = topic_rows(frame, port, settings.source_format, quarantine)
        writer = rows.writeStream.format(settings.source_format).options(**topic_write_options(rows, port, settings))
        if settings.source_format == "ottla":
            writer = writer.option("exactlyOnce", str(settings.exactly_once).lower())
    else:
        write = batch_function(
            port,
            name,
            settings,
            overwrite=step.output_mode == "complete",
            counted=bool(expectations_of(step.function)),
            quarantine=quarantine,
        )
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


def trigger_of(step: Step, settings: RunSettings) -> str:
    """Each batch on an object store costs requests, also without records."""
    return step.trigger or ("10 seconds" if is_object_store(settings.checkpoints) else "1 second")


def checkpoint_position(checkpoint: str) -> int:
    """The sum of the offsets that the newest batch of a local checkpoint reached: the further of two has the larger."""
    folder, _, query = checkpoint.rpartition("/")
    reached = merged_offsets(Checkpoint(LocalFiles(), folder).last_offsets(query))
    return sum(int(offset) for parts in reached.values() for offset in parts.values())
