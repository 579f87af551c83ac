"""What `foreachBatch` calls: one micro-batch into a topic, a table or a view, each exactly once by query and batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.connect.sinks.base import Work, null_key_error
from ottla.model.user_error import UserError
from ottla.pipelines.checked_rows import FAILED, is_good
from ottla.pipelines.checkpoints import Checkpoint, open_driver_files
from ottla.pipelines.codecs import column_name
from ottla.pipelines.outputs.batch import newest_of_each, write_table
from ottla.pipelines.outputs.spark_merge import has_null_keys
from ottla.pipelines.ports import Port, Topic, View
from ottla.pipelines.positions import merged_offsets
from ottla.pipelines.topic_rows import quarantined_rows, topic_rows
from ottla.pipelines.unfinished import UNFINISHED

if TYPE_CHECKING:
    from ottla.pipelines.build import RunSettings


def batch_function(
    port: Port,
    name: str,
    settings: RunSettings,
    *,
    overwrite: bool,
    counted: bool = False,
    quarantine: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """`counted`: the frame has expectations, whose counts are right if each row is computed once."""
    folder, _, query = settings.checkpoint_of(name).rpartition("/")
    tried = -1

    def write(frame: DataFrame, batch_id: int) -> None:
        nonlocal tried
        stored = Checkpoint(open_driver_files(frame.sparkSession, folder), folder)
        application = f"{name.replace('/', '.')}-{_query_id(stored, query)}"
        offsets = merged_offsets(stored.offsets(query, batch_id))
        note = {"ottla.batch": str(batch_id), "ottla.offsets": json.dumps(offsets)}
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
            rows = topic_rows(frame, port, settings.source_format, quarantine)
            _write_topic(rows, port, settings, work, writing)
            return
        with _computed_once(frame) if counted else nullcontext(frame) as rows:
            good = rows if quarantine is None else _without_quarantined(rows, quarantine, settings, work, writing)
            if isinstance(port, View):
                _write_view(good, port, settings, work, writing)
            else:
                write_table(good, port, work, overwrite=overwrite)

    return write


@contextmanager
def _computed_once(frame: DataFrame) -> Iterator[DataFrame]:
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _without_quarantined(
    frame: DataFrame, quarantine: str, settings: RunSettings, work: Work, writing: Mapping[str, str]
) -> DataFrame:
    """Writes the rows that failed, with a marker of their own. The table skips a batch that it has, and so does the topic."""
    rows = quarantined_rows(frame, settings.source_format)
    marked = replace(work, application=f"{work.application}-quarantine")
    _write_topic(rows, Topic(name=quarantine), settings, marked, writing)
    return frame.where(is_good()).drop(FAILED)


def topic_write_options(rows: DataFrame, port: Topic, settings: RunSettings) -> dict[str, str]:
    """Rows with a quarantine have a column that names their topic."""
    named = {} if "topic" in rows.columns else {"topic": port.name}
    return {**settings.client_options(), **port.options, **named}


def _write_topic(rows: DataFrame, port: Topic, settings: RunSettings, work: Work, writing: Mapping[str, str]) -> None:
    options = topic_write_options(rows, port, settings)
    if settings.source_format != "ottla":  # Spark's own connector writes at least once
        rows.write.format(settings.source_format).options(**options).save()
        return
    (
        rows.write.format("ottla")
        .options(**options, **writing)
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
        rows = topic_rows(newest.withColumn("_view_key", key), port.topic_with_key("_view_key"), settings.source_format)
        _write_topic(rows, port.topic, settings, work, writing)
        write_table(newest, port.delta, work, overwrite=False)
    finally:
        newest.unpersist()


def _query_id(checkpoint: Checkpoint, query: str) -> str:
    query_id = checkpoint.query_id(query)
    if query_id is None:
        raise UserError(
            f"the checkpoint {checkpoint.folder}/{query} does not name its query: its file metadata is gone"
        )
    return query_id
