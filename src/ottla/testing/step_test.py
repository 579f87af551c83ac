"""A step of a pipeline in a test: records in, watermark advanced, rows out. There is no broker, and nothing waits for time.

The step runs as in a pipeline: the same source (over segment files), plan, expectations and output mode, as one streaming
query for each output. Each look at the rows is a run over what is there, with the checkpoint of the run before.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from ottla.model.extras import SPARK, extra_needed
from ottla.model.user_error import UserError
from ottla.testing.exchange import encoded
from ottla.testing.stored_topics import StoredTopics, timestamp_ms, value_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipelines.pipeline import Pipeline, Step


_LOOK_S = 0.05
"""Between two looks at a query, which ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    row: dict[str, Any]
    expectations: tuple[str, ...]
    """The names of the expectations that the row fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that cannot be decoded."""

    value: bytes | None
    reason: str


@dataclass(slots=True)
class _Output:
    """What the query of an output has given."""

    rows: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """By batch: a batch that runs again replaces its rows."""
    quarantined: dict[int, list[QuarantinedRow]] = field(default_factory=dict)
    counts: list[tuple[int, list[int]]] = field(default_factory=list)
    seen_changes: int = -1


class StepTest:
    """`with` it: the end removes the files. `step` is a name, and may be left out for a pipeline of one step."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, step: str | None = None) -> None:
        with extra_needed("ottla.testing.StepTest", SPARK):
            from ottla.pipelines.analysis import check_names
            from ottla.pipelines.build import RunSettings
        self._spark = spark
        self._step = _chosen(pipeline, step)
        check_names(self._step)
        self._folder = tempfile.mkdtemp(prefix="ottla-step-")
        self._topics = StoredTopics(os.path.join(self._folder, "log"))
        self._settings = RunSettings(
            bootstrap_servers="",
            checkpoints=os.path.join(self._folder, "checkpoints"),
            path=self._topics.folder,
            starting={"startingOffsets": "earliest"},
        )
        self._tables: dict[str, DataFrame] = {}
        self._changes = 0
        """Records, tables and watermarks so far: a query starts only if there is something new."""
        self._outputs = {branch: _Output() for branch in self._step.writes}
        for name in self._step.reads:
            if self._topic(name) is not None:
                self._topics.create(self._topic_name(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(
        self,
        source: str,
        *values: Any,
        key: Any = None,
        at: datetime | str | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Writes a record for each value to an input, named as the parameter of the step's function.

        A dict becomes JSON or Avro, as the topic has it; text and bytes are written as they are; None is a tombstone. `at`
        is the time of the records, by default a millisecond after the record before.
        """
        topic = self._topic(source)
        if topic is None:
            raise UserError(f"the input {source} of step {self._step.name} is a table: give its rows with table()")
        values_bytes = [value_bytes(value, topic.value) for value in values]
        self._changes += 1
        self._topics.send(topic.name, values_bytes, key=encoded(key), at=at, headers=headers or {})

    def table(self, source: str, rows: Sequence[Mapping[str, Any]], schema: str) -> None:
        """The rows of an input that is a table; `schema` is a Spark DDL string."""
        if source not in self._step.reads or self._topic(source) is not None:
            tables = [name for name in self._step.reads if self._topic(name) is None]
            raise UserError(f"step {self._step.name} has no table {source!r} as input; its tables are {tables}")
        self._changes += 1
        self._tables[source] = self._spark.createDataFrame([dict(row) for row in rows], schema)

    def rows(self, branch: str = "") -> list[dict[str, Any]]:
        """The rows that the records since the last call give, without columns that the output leaves out."""
        output = self._run(branch)
        fresh = [row for batch in sorted(output.rows) for row in output.rows[batch]]
        output.rows.clear()
        return fresh

    def quarantined(self, branch: str = "") -> list[QuarantinedRow]:
        """All rows that the step has quarantined."""
        quarantined = self._run(branch).quarantined
        return [row for batch in sorted(quarantined) for row in quarantined[batch]]

    def expectations(self, branch: str = "") -> dict[str, tuple[int, int]]:
        """The rows that passed and failed each expectation."""
        from ottla.pipelines.expectations import expectations_of

        totals: dict[str, tuple[int, int]] = {}
        counts = self._run(branch).counts
        for number, expectation in enumerate(expectations_of(self._step.function, branch)):
            failed = sum(failures[number] for _, failures in counts)
            totals[expectation.name] = sum(rows for rows, _ in counts) - failed, failed
        return totals

    def dead_letters(self, source: str) -> list[DeadLetter]:
        """The records of an input that cannot be decoded. Without a dead-letter topic such a record fails the step."""
        from ottla.pipelines.build import decoded_topic

        topic = self._topic(source)
        if topic is None or topic.dead_letter is None:
            raise UserError(f"the input {source} of step {self._step.name} has no dead_letter topic")
        bad = decoded_topic(self._spark, topic, self._settings, streaming=False).where("error is not null")
        return [DeadLetter(value=row.raw, reason=row.error) for row in bad.orderBy("offset").collect()]

    def advance_watermark(self, to: datetime | str) -> None:
        """Moves the watermark of the step's queries to a time, after all records so far: windows before that time close."""
        for branch in self._step.writes:
            self._run(branch)
            _plan_empty_batch(self._checkpoint(branch), timestamp_ms(to))
        self._changes += 1

    # One run of a query

    def _run(self, branch: str) -> _Output:
        from ottla.pipelines.expectations import expectations_of

        if branch not in self._outputs:
            raise UserError(f"step {self._step.name} has no output {branch!r}; it has {list(self._outputs)}")
        output = self._outputs[branch]
        if output.seen_changes == self._changes:
            return output
        expectations = expectations_of(self._step.function, branch)

        def collect(frame: DataFrame, batch: int) -> None:
            output.rows[batch], output.quarantined[batch] = [], []
            for row in frame.toArrow().to_pylist():  # times have the zone UTC, whatever the zone of the machine is
                self._take(row, branch, batch)

        writer = (
            self._frame(branch)
            .writeStream.foreachBatch(collect)
            .outputMode(self._step.output_mode)
            .option("checkpointLocation", self._checkpoint(branch))
            .trigger(availableNow=True)
        )
        for progress in self._to_its_end(writer):
            if expectations:
                from ottla.pipelines.checked_rows import failed_counts

                output.counts.append(failed_counts(expectations, progress))
        output.seen_changes = self._changes
        return output

    def _take(self, row: dict[str, Any], branch: str, batch: int) -> None:
        """Columns that begin with _ are not written, but for the key and the mark of a deletion."""
        from ottla.pipelines.checked_rows import FAILED

        output, key = self._outputs[branch], getattr(self._step.writes[branch], "key", None)
        failed = row.pop(FAILED, None) or []
        written = {name: value for name, value in row.items() if not name.startswith("_") or name == key}
        if row.get("_deleted"):
            written["_deleted"] = True
        if failed:
            names = tuple(expectation["name"] for expectation in failed)
            output.quarantined[batch].append(QuarantinedRow(row=written, expectations=names))
        else:
            output.rows[batch].append(written)

    def _frame(self, branch: str) -> DataFrame:
        from ottla.pipelines.analysis import check_output, checked_branches

        inputs = {name: self._input(name, branch) for name in self._step.reads}
        frame = checked_branches(self._step, self._step.function(**inputs))[branch]
        check_output(self._step, self._step.writes[branch], frame)
        return frame

    def _input(self, name: str, branch: str) -> DataFrame:
        from ottla.pipelines.build import input_frame
        from ottla.pipelines.pins import folder_of

        port = self._step.reads[name]
        if self._topic(name) is not None:
            return input_frame(self._spark, port, self._settings, folder_of(self._checkpoint(branch), name))
        if name not in self._tables:
            raise UserError(f"the input {name} of step {self._step.name} is a table: give its rows with table()")
        return self._tables[name]

    def _to_its_end(self, writer: Any) -> list[Any]:
        """The progress of all batches. A busy machine may be too slow for Spark's limits: such a run goes on where it was."""
        from pyspark.errors import PySparkException

        from ottla.env.restarts import MAX_RESTARTS, pause_s
        from ottla.pipelines.reasons import is_passing, plain_reason
        from ottla.pipelines.run import StepFailed

        batches: list[Any] = []
        failures = 0
        while True:
            query = None
            try:
                query = writer.start()
                _await(query)
                return batches + list(query.recentProgress)
            except PySparkException as problem:
                failures += 1
                if failures > MAX_RESTARTS or not is_passing(problem):
                    raise StepFailed(self._step.name, plain_reason(problem)) from problem
            batches += list(query.recentProgress) if query is not None else []
            time.sleep(pause_s(failures))

    def _checkpoint(self, branch: str) -> str:
        from ottla.pipelines.pipeline import query_name

        return self._settings.checkpoint_of(query_name(self._step, branch))

    def _topic(self, source: str) -> Any:
        from ottla.pipelines.ports import Topic, TopicTable

        port = self._step.reads.get(source)
        if port is None:
            raise UserError(f"step {self._step.name} has no input {source!r}; it reads {list(self._step.reads)}")
        port = port.topic if isinstance(port, TopicTable) else port
        return port if isinstance(port, Topic) else None

    def _topic_name(self, source: str) -> str:
        return str(self._topic(source).name)


def _chosen(pipeline: Pipeline, name: str | None) -> Step:
    steps = {step.name: step for step in pipeline.steps}
    if name is None and len(steps) == 1:
        return pipeline.steps[0]
    step = steps.get((name or "").replace("_", "-")) or steps.get(name or "")
    if step is None:
        raise UserError(f"name a step of the pipeline {pipeline.name}: {', '.join(steps)}")
    return step


def _await(query: Any) -> None:
    from ottla.pipelines.running import only_waits_for_the_clock

    while not query.awaitTermination(_LOOK_S):
        if only_waits_for_the_clock(query.recentProgress):
            query.stop()


def _plan_empty_batch(checkpoint: str, watermark_ms: int) -> None:
    """Plans the batch without records that Spark itself runs when a watermark has moved.

    The next start of the query finishes a batch that is in the offset log and not in the commit log.
    """
    folder = os.path.join(checkpoint, "offsets")
    batches = [int(name) for name in os.listdir(folder) if name.isdigit()] if os.path.isdir(folder) else []
    if not batches:
        raise UserError("there is no batch whose watermark could move: send a record first")
    with open(os.path.join(folder, str(max(batches))), encoding="utf-8") as file:
        version, facts, *offsets = file.read().split("\n")
    plan = json.loads(facts)
    with open(os.path.join(checkpoint, "commits", str(max(batches))), encoding="utf-8") as file:
        reached_ms = json.loads(file.read().partition("\n")[2]).get("nextBatchWatermarkMs", 0)
    plan["batchWatermarkMs"] = max(watermark_ms, int(plan["batchWatermarkMs"]), int(reached_ms))
    with open(os.path.join(folder, str(max(batches) + 1)), "w", encoding="utf-8") as file:
        file.write("\n".join([version, json.dumps(plan), *offsets]))
