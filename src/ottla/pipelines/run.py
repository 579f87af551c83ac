"""Running a pipeline: once over what is there, continuously under supervision, or as a backfill beside the old output.

One streaming query per output, and one per topic with dead letters. A query that fails is started again from its checkpoint
with a growing pause. After MAX_RESTARTS failures in a row the pipeline stops and reports the step, record and function
that failed. A checkpoint belongs to one process at a time (driver_lock.py).
"""

from __future__ import annotations

import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from ottla.connect.sinks.base import DELETED
from ottla.connect.sinks.delta import TableMissing
from ottla.env.restarts import MAX_RESTARTS, pause_s
from ottla.model.user_error import UserError
from ottla.pipelines import build
from ottla.pipelines.analysis import check_names, check_output, checked_branches, refuse_empty
from ottla.pipelines.checkpoints import Checkpoint, open_files, scheme_of, spark_location
from ottla.pipelines.dead_letters import LetterQuery, dead_letters, letter_queries, take_over, with_stored_names
from ottla.pipelines.driver_lock import DriverLock
from ottla.pipelines.expectations import expectations_of
from ottla.pipelines.file_inputs import FileInputs
from ottla.pipelines.identity import check_identity
from ottla.pipelines.input_groups import InputGroups
from ottla.pipelines.openlineage import QueryPlan, query_plan
from ottla.pipelines.outputs.batch import table_columns
from ottla.pipelines.pins import folder_of, refuse_remote_tables
from ottla.pipelines.pipeline import Pipeline, Step, input_topics, output_nodes, query_name
from ottla.pipelines.ports import Delta, Port, SparkTable, Topic, TopicTable, View
from ottla.pipelines.reasons import called, is_passing, plain_reason
from ottla.pipelines.running import Running, only_waits_for_the_clock
from ottla.pipelines.schema_watch import SchemaWatch
from ottla.pipelines.state_notes import checked_state
from ottla.pipelines.topics import create_outputs, existing_topics
from ottla.pipelines.unfinished import UNFINISHED, unfinished_batch
from ottla.tables.topics import TopicMetadata, settings_from

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Result = TypeVar("Result")
AT_ONCE = 2


class StepFailed(UserError):
    """Which step failed, and why, in the words of what went wrong and not of Spark's plumbing."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"step {step}: {reason}")
        self.step = step
        self.reason = reason


class PipelineRun:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, settings: build.RunSettings) -> None:
        self._spark = spark
        self.pipeline = pipeline
        self.settings = settings
        self.steps = pipeline.in_order()
        refuse_empty(pipeline)
        for step in self.steps:
            check_names(step)
        self.running: list[Running] = []
        self.warnings: list[str] = []
        """Sentences for the status."""
        self.waiting: dict[str, str] = {}
        """Steps that have not started, with the reason: a table that an earlier step makes with its first batch."""
        self._written: dict[str, StructType] = {}
        """The columns of outputs of a run over what is there, by node."""
        self.plans: dict[str, QueryPlan] = {}
        """By name of the query, of a run that `is_traced`."""
        self.is_traced = False
        self._stopping = threading.Event()
        self._lock: DriverLock | None = None
        self._letters: list[LetterQuery] = []
        self._checkpoint: Checkpoint | None = None
        self._file_inputs = FileInputs()
        self._groups = InputGroups({"bootstrap.servers": settings.bootstrap_servers, **settings.client})

    @property
    def ui_address(self) -> str:
        """Of Spark's own UI; empty where it is off or belongs to a Spark Connect server."""
        context = None if is_remote() else self._spark.sparkContext
        return str(context.uiWebUrl or "") if context is not None else ""

    def once(self, on_progress: Callable[[PipelineRun], None] | None = None) -> None:
        """Everything that is there now, step after step, so that each sees what the one before wrote."""
        with self._locked() as checkpoint:
            try:
                for level in self.pipeline.levels():
                    mine = [running for step in level for running in self._prepare(step, once=True)]
                    self.running += mine
                    self._work_through(mine, on_progress)
            finally:
                self._stop_queries()
            if not self.is_stopping:
                checkpoint.note_finished(query_name(step, branch) for step in self.steps for branch in step.writes)

    def continuously(self, on_progress: Callable[[PipelineRun], None] | None = None, poll_s: float = 0.5) -> None:
        """Until `stop` is called; StepFailed when a step cannot be kept running."""
        with self._locked(), SchemaWatch([port for step in self.steps for port in input_topics(step)]) as schemas:
            self.warnings = schemas.warnings
            try:
                self._start(self.steps)
                while not self._stopping.wait(poll_s):
                    self._supervise()
                    self._file_inputs.refresh(self.warnings)
                    self._start([step for step in self.steps if step.name in self.waiting])
                    if on_progress is not None:
                        on_progress(self)
            finally:
                self._stop_queries()

    def _start(self, steps: Sequence[Step]) -> None:
        """The queries of steps, all planned before the first starts. A step without its table waits for the next call."""
        prepared: list[Running] = []
        for step in steps:
            try:
                prepared += self._prepare(step, once=False)
                self.waiting.pop(step.name, None)
            except TableMissing as missing:
                self.waiting[step.name] = (
                    f"step {step.name} waits: {missing}; an earlier step makes the table with its first batch"
                )
        self.running += prepared
        for running in prepared:
            running.query = running.start()
            self._let_it_begin(running)

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _look(self, running: Running) -> None:
        running.look()
        if self.settings.path is None:
            self._groups.commit(running.name.replace("/", "."), running.progress)

    def _prepare(self, step: Step, *, once: bool) -> list[Running]:
        queries: list[Running] = []

        for branch, frame in self._frames(step).items():
            self._check_state(step, branch, frame)
            if once:
                self._note_columns(step.writes[branch], frame)
            name = f"{self.pipeline.name}/{query_name(step, branch)}"
            writer = _patiently(
                step,
                functools.partial(build.start_output, frame, step.writes[branch], step, name, self.settings, once=once),
            )
            quarantine = (Topic(name=step.quarantine),) if step.quarantine else ()
            running = Running(
                name=name,
                step=step,
                start=self._starter(step, writer, name),
                expectations=expectations_of(step.function, branch),
                inputs=step.reads,
                outputs=(step.writes[branch], *quarantine),
            )
            queries.append(running)
        return queries + [self._dead_letters(query, once=once) for query in self._letters if query.step is step]

    def _check_state(self, step: Step, branch: str, frame: DataFrame) -> None:
        """A Spark Connect client has no plans."""
        if self._checkpoint is None or is_remote():
            return
        rows = build.written_frame(frame, step.writes[branch], step.output_mode)
        reason = checked_state(self._checkpoint, query_name(step, branch), rows, step.output_mode)
        if reason is not None:
            raise StepFailed(step.name, reason)

    def _frames(self, step: Step) -> Mapping[str, DataFrame]:
        """What the step writes, by output. A global table is pinned by the checkpoint of its query, and each output is a
        query: the function is called for each output then."""
        pinned = any(isinstance(port, TopicTable) and not port.changes for port in step.reads.values())
        first = self._declared(step, next(iter(step.writes)))
        if not pinned:
            return first
        return {branch: self._declared(step, branch)[branch] if number else first[branch]
                for number, branch in enumerate(step.writes)}  # fmt: skip

    def _declared(self, step: Step, branch: str) -> Mapping[str, DataFrame]:
        checkpoint = self.settings.checkpoint_of(f"{self.pipeline.name}/{query_name(step, branch)}")

        inputs: dict[str, DataFrame] = {}

        def declare() -> Any:
            # Tables first: a missing table ends this before a topic is planned.
            ports = sorted(step.reads.items(), key=lambda item: not isinstance(item[1], Delta | View))
            inputs.update({name: self._input(port, folder_of(checkpoint, name)) for name, port in ports})
            self._file_inputs.add(inputs[name] for name, port in ports if isinstance(port, SparkTable))
            return called(step.function, inputs)

        try:
            branches = checked_branches(step, _patiently(step, declare))
            for name, frame in branches.items():
                check_output(step, step.writes[name], frame)
        except StepFailed:
            raise
        except (UserError, PySparkException) as problem:
            if isinstance(problem, TableMissing) and self._is_made_here(step):
                raise
            raise StepFailed(step.name, plain_reason(problem)) from problem
        for name, frame in branches.items() if self.is_traced else ():
            self.plans[f"{self.pipeline.name}/{query_name(step, name)}"] = query_plan(frame, inputs)
        return branches

    def _input(self, port: Port, pins: str) -> DataFrame:
        """A run over what is there finds no table where the step that makes the table had no rows: then nothing is in it."""
        try:
            return build.input_frame(self._spark, port, self.settings, pins)
        except TableMissing:
            if port.node not in self._written:
                raise
            return self._spark.createDataFrame([], self._written[port.node])

    def _is_made_here(self, step: Step) -> bool:
        made_here = {node for other in self.steps if other is not step for node in output_nodes(other)}
        return any(port.node in made_here for port in step.reads.values() if isinstance(port, Delta | View))

    def _note_columns(self, port: Port, frame: DataFrame) -> None:
        if isinstance(port, Delta | View):
            columns = table_columns(frame).schema
            self._written |= dict.fromkeys(
                {port.node, *([port.delta.node] if isinstance(port, View) else ())},
                StructType([column for column in columns if column.name != DELETED]),
            )

    def _dead_letters(self, query: LetterQuery, *, once: bool) -> Running:
        settings = replace(self.settings, starting={}) if query.whole else self.settings
        take_over(settings.checkpoint_of(self.pipeline.name), query, build.checkpoint_position)
        name = f"{self.pipeline.name}/{query.name}"
        frame = _patiently(
            query.step, lambda: dead_letters(build.topic_records(self._spark, query.topic, settings), query)
        )
        letters = (
            frame.writeStream.format(settings.source_format)
            .options(**settings.client_options(), topic=query.dead_letter)
            .queryName(name.replace("/", "."))
            .option("checkpointLocation", spark_location(settings.checkpoint_of(name)))
        )
        if settings.source_format == "ottla":
            letters = letters.option("exactlyOnce", str(settings.exactly_once).lower())
        trigger = build.trigger_of(query.step, settings)
        letters = letters.trigger(availableNow=True) if once else letters.trigger(processingTime=trigger)
        return Running(
            name=name,
            step=query.step,
            start=self._starter(query.step, letters, name),
            inputs={"records": query.topic},
            outputs=(Topic(name=query.dead_letter),),
        )

    def _starter(self, step: Step, writer: DataStreamWriter, name: str) -> Callable[[], StreamingQuery]:
        """A writer reads local checkpoints itself: whether it repeats a batch whose markers may have expired."""
        checkpoint, query = self._checkpoint, name.partition("/")[2]
        reads_itself = scheme_of(self.settings.checkpoints) == "file" or self.settings.source_format != "ottla"

        def start() -> StreamingQuery:
            if checkpoint is not None and not reads_itself:
                writer.option(UNFINISHED, unfinished_batch(checkpoint, query))
            return _patiently(step, writer.start)

        return start

    def _work_through(self, mine: list[Running], on_progress: Callable[[PipelineRun], None] | None) -> None:
        """All of `mine` to their ends, a few at a time: each starts Python workers that must come up in seconds."""
        waiting = list(mine)
        active: list[Running] = []
        while (waiting or active) and not self._stopping.is_set():
            self._check_lock()
            while waiting and len(active) < AT_ONCE:
                running = waiting.pop(0)
                running.query = running.start()
                active.append(running)
            time.sleep(0.05)
            for running in list(active):
                query = running.query
                is_active = query is not None and query.isActive
                self._look(running)  # after the question: the last progress of a query that has ended is there
                if query is not None and is_active:
                    if only_waits_for_the_clock(query.recentProgress):
                        query.stop()
                    continue
                active.remove(running)
                problem = running.query.exception() if running.query is not None else None
                if problem is not None and is_passing(problem) and running.restarts < MAX_RESTARTS:
                    running.restarts += 1
                    self._stopping.wait(pause_s(running.restarts))  # what is too busy now is so a moment later
                    waiting.append(running)
                elif problem is not None:
                    raise StepFailed(running.step.name, plain_reason(problem)) from problem
            if on_progress is not None:
                on_progress(self)

    def _let_it_begin(self, running: Running) -> None:
        """Queries come up one after the other: each starts Python processes, for which Spark waits only ten seconds."""
        deadline = time.monotonic() + 15.0
        while running.query is not None and running.query.isActive and time.monotonic() < deadline:
            if "nitializing" not in str(running.query.status["message"]) or self._stopping.wait(0.1):
                return

    def _check_lock(self) -> None:
        if self._lock is not None:
            self._lock.check()

    def _supervise(self) -> None:
        self._check_lock()
        for running in self.running:
            is_active = running.query is not None and running.query.isActive
            self._look(running)
            if is_active:
                continue
            problem = running.query.exception() if running.query is not None else None
            if running.query is not None:
                running.last_error = plain_reason(problem) if problem is not None else "it ended"
                running.query = None
                running.failures_in_a_row += 1
                running.again_at = time.monotonic() + pause_s(running.failures_in_a_row)
                if running.failures_in_a_row > MAX_RESTARTS:
                    raise StepFailed(running.step.name, f"{running.last_error} (after {MAX_RESTARTS} restarts)")
            elif time.monotonic() >= running.again_at:
                running.restarts += 1
                try:
                    running.query = running.start()
                    self._let_it_begin(running)
                except StepFailed as failed:
                    running.last_error = failed.reason
                    running.failures_in_a_row += 1
                    running.again_at = time.monotonic() + pause_s(running.failures_in_a_row)
                    if running.failures_in_a_row > MAX_RESTARTS:
                        raise

    def _stop_queries(self) -> None:
        for running in self.running:
            if running.query is not None and running.query.isActive:
                running.query.stop()
                self._look(running)
        self._groups.close()

    @contextmanager
    def _locked(self) -> Iterator[Checkpoint]:
        """Two drivers on one checkpoint would take turns in overwriting each other's progress."""
        settings = self.settings
        refuse_remote_tables(self.steps, settings)
        there = existing_topics(settings, self.steps)
        client = settings_from({"bootstrap.servers": settings.bootstrap_servers, **settings.client}, "ottla-pipelines")
        with TopicMetadata(client) as metadata:
            present = metadata.present(port.name for step in self.steps for port in input_topics(step))
        files = open_files(self._spark, settings.checkpoints)
        checkpoint = Checkpoint(files, settings.checkpoint_of(self.pipeline.name))
        check_identity(self.pipeline, checkpoint, present)
        create_outputs(settings, self.steps, there)
        note = checkpoint.noted(id=uuid.uuid4().hex, cluster=present.cluster_id)
        with DriverLock(client, checkpoint, note["id"]) as lock:
            self._lock, self._checkpoint = lock, checkpoint
            checkpoint.sweep()
            self._letters = with_stored_names(letter_queries(self.steps), checkpoint)
            yield checkpoint


def _patiently(step: Step, function: Callable[[], Result]) -> Result:
    """Spark also calls Python workers while it plans: temporary errors are retried, all others fail the step."""
    failures = 0
    while True:
        try:
            return function()
        except (PySparkException, Py4JJavaError) as problem:  # the second: a checkpoint that cannot be written
            if not is_passing(problem) or failures == MAX_RESTARTS:
                raise StepFailed(step.name, plain_reason(problem)) from problem
        failures += 1
        time.sleep(pause_s(failures))
