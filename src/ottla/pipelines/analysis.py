"""The plans of a pipeline, analysed without running anything: what `ottla pipeline validate` reports.

Spark resolves columns and types of each step, and its own check of streaming plans refuses what a query would refuse at its
start. No record is read, and no broker is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType

from ottla.connect.sinks.base import DELETED
from ottla.model.errors import KafkaError
from ottla.model.topic_names import check_topic_name
from ottla.model.user_error import UserError
from ottla.pipelines import build
from ottla.pipelines.checked_rows import checked
from ottla.pipelines.checkpoints import Checkpoint
from ottla.pipelines.expectations import MOST_EXPECTATIONS, QUARANTINE, expectations_of
from ottla.pipelines.options import read_options
from ottla.pipelines.outputs.batch import check_table
from ottla.pipelines.pipeline import Pipeline, Step, input_topics, query_name, written_nodes
from ottla.pipelines.ports import Delta, Files, Iceberg, Port, SparkTable, SqlTable, Topic, View
from ottla.pipelines.reasons import called, plain_reason
from ottla.pipelines.state_changes import state_problem
from ottla.pipelines.state_notes import expression_problem
from ottla.pipelines.stored_state import stored_state
from ottla.pipelines.topic_rows import output_rows
from ottla.pipelines.topics import output_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES = (Delta, SparkTable, SqlTable, View)
"""What a step before may have to make first."""
_MODES = {"append": "Append", "update": "Update", "complete": "Complete"}


def problems(
    spark: SparkSession,
    pipeline: Pipeline,
    settings: build.RunSettings,
    checkpoint: Checkpoint | None = None,
    kept: list[str] | None = None,
) -> list[str]:
    """One sentence for each step that would fail. With a checkpoint `kept` gets a line for each query that goes on."""
    reasons = []
    try:
        refuse_empty(pipeline)
    except UserError as problem:
        return [str(problem)]
    made_here = {node for step in pipeline.steps for node in written_nodes(step)}
    for step in pipeline.in_order():
        try:
            frames = check_step(spark, step, settings, made_here)
            if checkpoint is not None:
                reasons += _state_problems(step, frames, checkpoint, [] if kept is None else kept)
        except (UserError, PySparkException) as problem:
            reasons.append(f"step {step.name}: {plain_reason(problem)}")
        except Exception as problem:  # noqa: BLE001 - a supervisor: every error of a step's function is reported
            reasons.append(f"step {step.name}: {type(problem).__name__}: {problem}")
    return reasons


def _state_problems(step: Step, frames: Mapping[str, DataFrame], checkpoint: Checkpoint, kept: list[str]) -> list[str]:
    reasons = []
    for branch, frame in frames.items():
        query = query_name(step, branch)
        stored = stored_state(checkpoint, query)
        if stored is None:
            continue
        rows = build.written_frame(frame, step.writes[branch], step.output_mode)
        reason = state_problem(rows, step.output_mode, stored, f"{checkpoint.folder}/{query}")
        reason = reason or expression_problem(checkpoint, stored, rows)
        if reason is not None:
            reasons.append(f"step {step.name}: {reason}")
            continue
        state = f"its state is in {stored.partitions} partitions" if stored.has_state else "it has no state"
        kept.append(f"{query} goes on with its checkpoint after batch {stored.batch}; {state}")
    return reasons


def check_step(
    spark: SparkSession, step: Step, settings: build.RunSettings, made_here: Collection[str] = ()
) -> Mapping[str, DataFrame]:
    """The frames by branch. A step that reads a table which a step before it makes (`made_here`) is checked once the table
    is there, and has none before."""
    check_names(step)
    if settings.source_format == "ottla":
        for topic in input_topics(step):
            read_options(build.topic_options(topic, settings), streaming=True)
    try:
        inputs = {name: build.input_frame(spark, port, settings) for name, port in step.reads.items()}
    except (UserError, PySparkException):
        if any(port.node in made_here and isinstance(port, _TABLES) for port in step.reads.values()):
            return {}
        raise
    branches = checked_branches(step, called(step.function, inputs))
    for branch, frame in branches.items():
        check_output(step, step.writes[branch], frame)
        _check_streaming(frame, step.output_mode)
        _check_start(step, branch, frame, settings)
    return branches


def refuse_empty(pipeline: Pipeline) -> None:
    if not pipeline.steps:
        raise UserError(f"the pipeline {pipeline.name} has no steps: declare them with @NAME.step(...)")


def check_names(step: Step) -> None:
    """UserError for topics that cannot exist, and for dead letters that would be read again."""
    for port in input_topics(step):
        if port.dead_letter == port.name:
            raise UserError(
                f"the dead letters of {port.name} go to their own input, which would read them again: name another topic"
            )
    for name in [port.name for port in input_topics(step)] + [port.name for port in output_topics([step])]:
        try:
            check_topic_name(name)
        except KafkaError as problem:
            raise UserError(problem.message) from problem
    for port in output_topics([step]):
        if port.partitions is not None and port.partitions < 1:
            raise UserError(f"the topic {port.name} needs at least one of its partitions, not {port.partitions}")
    check_expectations(step)


def _check_start(step: Step, branch: str, frame: DataFrame, settings: build.RunSettings) -> None:
    """What Spark and the output refuse when the query starts, as far as that needs neither a store nor a broker."""
    port = step.writes[branch]
    try:
        build.start_output(frame, port, step, f"validate/{step.name}", settings, once=False)
    except Py4JJavaError as problem:
        raise UserError(plain_reason(problem)) from problem
    topic = port.topic if isinstance(port, View) else port
    if isinstance(topic, Topic) and settings.source_format == "ottla":
        from ottla.pipelines.writer import write_options  # PySpark 4.0 lacks its base class

        options = {**settings.client_options(), **topic.options, "topic": topic.name}
        write_options(options, StructType().add("value", BinaryType()))
    table = port.delta if isinstance(port, View) else port
    if not isinstance(table, Topic | SparkTable):
        check_table(frame, table, overwrite=step.output_mode == "complete")


def branches_of(step: Step, result: Any) -> Mapping[str, DataFrame]:
    """The frames of a step's function by branch. UserError if they are not those that the step declares."""
    branches: Mapping[str, Any] = result if isinstance(result, Mapping) else {"": result}
    if set(branches) != set(step.writes):
        raise UserError(f"the function gives {sorted(branches)}, it is declared to write {sorted(step.writes)}")
    for frame in branches.values():
        if not isinstance(frame, DataFrame):
            raise UserError(f"the function gives a {type(frame).__name__}, not a DataFrame")
    return branches


def checked_branches(step: Step, result: Any) -> Mapping[str, DataFrame]:
    """The frames of a step's function by branch, with the expectations of each in its plan."""
    return {
        branch: checked(frame, expectations_of(step.function, branch))
        for branch, frame in branches_of(step, result).items()
    }


def check_expectations(step: Step) -> None:
    """UserError for expectations that contradict each other or the step, as far as that needs no plan."""
    expectations = expectations_of(step.function)
    if len(expectations) > MOST_EXPECTATIONS:
        raise UserError(f"the step has {len(expectations)} expectations, and at most {MOST_EXPECTATIONS} are allowed")
    names = [expectation.name for expectation in expectations]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two expectations have the name {name!r}: give each a name of its own with name=")
    for branch in (expectation.branch for expectation in expectations if expectation.branch is not None):
        if branch not in step.writes:
            raise UserError(
                f"an expectation is for the output {branch!r}; the step has {', '.join(map(repr, step.writes))}"
            )
    _check_quarantine(step, any(expectation.on_fail == QUARANTINE for expectation in expectations))


def _check_quarantine(step: Step, needed: bool) -> None:  # noqa: FBT001 - one caller, beside this function
    if needed and step.quarantine is None:
        raise UserError('on_fail="quarantine" needs a topic for the rows: name the topic with quarantine= in @step')
    if not needed and step.quarantine is not None:
        raise UserError(
            f'quarantine={step.quarantine!r} gets no row: no expectation of the step has on_fail="quarantine"'
        )
    if needed and step.output_mode == "complete":
        raise UserError(
            "output_mode complete writes the whole result with each batch, so each batch would quarantine the same rows "
            "again: use on_fail drop or fail"
        )
    others = {port.node for port in (*step.reads.values(), *step.writes.values())}
    if f"topic:{step.quarantine}" in others:
        raise UserError(f"the quarantine {step.quarantine} is an input or output of its own step: name another topic")


def check_output(step: Step, port: Port, frame: DataFrame) -> None:
    """UserError for a combination of query and output that cannot run."""
    if not frame.isStreaming:
        raise UserError(
            "no input is a stream: table_of, delta, sql_table and spark_table are tables; read at least one of the topics "
            "with topic(...) or changes_of(...)"
        )
    if step.output_mode == "complete" and isinstance(port, Topic | View):
        topic = port.topic if isinstance(port, View) else port
        raise UserError(
            f"output_mode complete would write the whole result into the topic {topic.name} with each batch: use update, "
            "which writes the rows that changed"
        )
    if isinstance(port, SparkTable):
        _check_format(frame, port.format)
    columns = list(frame.columns)
    _check_columns(port, columns)
    for kind, names in _needed(port):
        missing = [name for name in names if name not in columns]
        if missing:
            raise UserError(
                f"the {kind} {missing[0]!r} of {port.node} is not a column of its rows; they have {', '.join(columns)}"
            )
    if isinstance(port, Topic):
        output_rows(frame, port).schema  # noqa: B018 - the analysis is the point
    elif isinstance(port, View):
        output_rows(frame, port.topic_with_key(port.delta.keys[0])).schema  # noqa: B018 - as above


def _check_columns(port: Port, columns: list[str]) -> None:
    kept = [name for name in columns if not name.startswith("_")]
    raw = isinstance(port, Topic) and (port.value.kind in {"bytes", "text"} or DELETED in columns)
    if not kept and not raw:
        raise UserError(
            f"{port.node} gets no column: names that begin with _ are left out, and the rows have {', '.join(columns)}"
        )
    lower = [name if isinstance(port, Topic) else name.lower() for name in columns]
    for name in columns:
        if lower.count(name if isinstance(port, Topic) else name.lower()) > 1:
            raise UserError(f"the rows for {port.node} have the column {name!r} twice: drop or rename one")


def _needed(port: Port) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(port, Topic) and port.key is not None:
        yield "key", (port.key,)
    if isinstance(port, View):
        yield "key", port.delta.keys
    if isinstance(port, Delta | Iceberg | SqlTable):
        yield "key", port.keys
    if isinstance(port, Delta | Files | Iceberg):
        yield "partition column", port.partition_by


def _check_format(frame: DataFrame, name: str) -> None:
    """UserError if the session has no such data source; Spark itself reports that in the first batch only."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return
    spark: Any = frame.sparkSession
    try:
        sources = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource  # noqa: SLF001 - PySpark's only way to them
        sources.lookupDataSource(name, spark._jsparkSession.sessionState().conf())  # noqa: SLF001 - as above
    except (Py4JJavaError, PySparkException) as problem:
        if "DATA_SOURCE_NOT_FOUND" in f"{problem} {getattr(problem, 'java_exception', '')}":
            raise UserError(
                f"this Spark has no format {name}: add its jar with --conf spark.jars.packages=GROUP:NAME:VERSION, or use "
                "delta(...), iceberg(...) or files(...), which need no jar"
            ) from problem


def _check_streaming(frame: DataFrame, output_mode: str) -> None:
    """Spark's check at the start of a query, which Spark Connect has no call for."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return
    spark: Any = frame.sparkSession
    jvm = spark._jvm  # noqa: SLF001 - PySpark's only way to the check
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode: Callable[[], Any] = getattr(modes, _MODES[output_mode])
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(plan, mode())
