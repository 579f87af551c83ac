"""OpenLineage events of a run: each query is a job, and each run of a query a run of that job.

START comes when a query starts, RUNNING with its progress, COMPLETE or FAIL at its end. Names of datasets follow the
naming rules of OpenLineage. The events hold names, columns, offsets and counts, never a value of a record.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ottla.connect.locations import absolute
from ottla.pipelines.ports import Delta, Files, Iceberg, Port, SparkTable, SqlTable, Topic, TopicTable, View
from ottla.pipelines.positions import RESERVED_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from ottla.pipelines.run import PipelineRun
    from ottla.pipelines.running import Running

PRODUCER = "https://ottla.dev/pipelines"
JOB_NAMESPACE = "ottla"
RUNNING_EVERY_S = 60.0
_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "schema": f"{_SPEC}/facets/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "columnLineage": f"{_SPEC}/facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet",
    "errorMessage": f"{_SPEC}/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "jobType": f"{_SPEC}/facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
    "processing_engine": f"{_SPEC}/facets/1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
    "ottla_offsets": f"{PRODUCER}/OffsetsInputDatasetFacet.json",
    "ottla_progress": f"{PRODUCER}/ProgressRunFacet.json",
}

Dataset = dict[str, Any]
Event = dict[str, Any]


def facet(name: str, /, **content: Any) -> dict[str, Any]:
    return {name: {"_producer": PRODUCER, "_schemaURL": _FACETS[name], **content}}


def dataset_name(port: Port, bootstrap_servers: str) -> tuple[str, str]:
    """Namespace and name, without any login."""
    if isinstance(port, TopicTable | View):
        return dataset_name(port.topic, bootstrap_servers)
    if isinstance(port, Topic):
        return f"kafka://{bootstrap_servers.partition(',')[0]}", port.name
    if isinstance(port, Delta | Files):
        return _place(absolute(port.path))
    if isinstance(port, SqlTable):
        return _database(port)
    if isinstance(port, Iceberg):
        parts = urlsplit(str(port.catalog.get("uri", "")))
        return (f"{parts.scheme}://{_host(parts.netloc)}" if parts.netloc else "iceberg"), port.table
    if isinstance(port, SparkTable):
        return port.format, port.node.partition(":")[2] or port.format
    return "ottla", port.node


def _place(path: str) -> tuple[str, str]:
    if "://" not in path:
        return "file", path
    parts = urlsplit(path)
    return f"{parts.scheme}://{_host(parts.netloc)}", parts.path.strip("/")


def _database(port: SqlTable) -> tuple[str, str]:
    parts = urlsplit(port.uri)
    if not parts.netloc:
        return parts.scheme or "file", f"{parts.path}#{port.table}"
    scheme = "postgres" if parts.scheme.startswith("postgres") else parts.scheme
    names = [parts.path.strip("/"), *(["public"] if scheme == "postgres" and "." not in port.table else []), port.table]
    return f"{scheme}://{_host(parts.netloc)}", ".".join(name for name in names if name)


def _host(netloc: str) -> str:
    """Without user and password."""
    return netloc.rpartition("@")[2]


def schema_fields(schema: StructType) -> list[dict[str, Any]]:
    """Columns that begin with _ are facts about a record, not values."""
    return [_schema_field(column.name, column.dataType) for column in schema if not column.name.startswith("_")]


def _schema_field(name: str, kind: DataType) -> dict[str, Any]:
    if kind.typeName() == "struct":
        nested: Any = kind
        return {"name": name, "type": "struct", "fields": [_schema_field(part.name, part.dataType) for part in nested]}
    return {"name": name, "type": kind.simpleString()}


@dataclass(slots=True, kw_only=True)
class QueryPlan:
    """What the plan of a query gives: columns of inputs (by parameter) and of the output, and which come from which."""

    inputs: Mapping[str, StructType] = field(default_factory=dict)
    output: StructType | None = None
    columns: Mapping[str, Sequence[tuple[str, str, bool]]] = field(default_factory=dict)
    """Column of the output -> parameter, column of that input, and whether the value is unchanged."""


def query_plan(output: DataFrame, inputs: Mapping[str, DataFrame]) -> QueryPlan:
    from ottla.pipelines.column_lineage import column_sources

    schemas = {parameter: frame.schema for parameter, frame in inputs.items()}
    return QueryPlan(inputs=schemas, output=output.schema, columns=column_sources(output, inputs))


def event(
    kind: str, run_id: str, running: Running, plan: QueryPlan, bootstrap_servers: str, *, spark: str, error: str = ""
) -> Event:
    """One event. Every event is complete by itself."""
    run_facets = facet("processing_engine", version=spark, name="spark")
    run_facets |= facet("ottla_progress", rows=running.rows, batch=running.progress.get("batchId", -1), lag=running.lag)
    if error:
        run_facets |= facet("errorMessage", message=error, programmingLanguage="PYTHON")
    return {
        "eventType": kind,
        "eventTime": datetime.now(UTC).isoformat(),
        "producer": PRODUCER,
        "schemaURL": _EVENT,
        "run": {"runId": run_id, "facets": run_facets},
        "job": {
            "namespace": JOB_NAMESPACE,
            "name": running.name.replace("/", "."),
            "facets": facet("jobType", processingType="STREAMING", integration="SPARK", jobType="QUERY"),
        },
        "inputs": [
            _input(parameter, port, plan, running.progress, bootstrap_servers)
            for parameter, port in running.inputs.items()
        ],
        "outputs": [_output(port, plan, running.inputs, bootstrap_servers) for port in running.outputs],
    }


def _input(parameter: str, port: Port, plan: QueryPlan, progress: Mapping[str, Any], bootstrap_servers: str) -> Dataset:
    namespace, name = dataset_name(port, bootstrap_servers)
    dataset: Dataset = {"namespace": namespace, "name": name, "facets": {}, "inputFacets": {}}
    if parameter in plan.inputs:
        dataset["facets"] = facet("schema", fields=schema_fields(plan.inputs[parameter]))
    offsets = _offsets_of(name, progress) if isinstance(port, Topic | TopicTable) else {}
    if offsets:
        dataset["inputFacets"] = facet("ottla_offsets", partitions=offsets)
    return dataset


def _offsets_of(topic: str, progress: Mapping[str, Any]) -> dict[str, int]:
    """Where the query stands in each partition of the topic, from its last batch."""
    from ottla.pipelines.running import parsed_offsets

    for source in progress.get("sources") or ():
        ends = parsed_offsets(source.get("endOffset"))
        if isinstance(ends, dict) and topic != RESERVED_KEY and isinstance(ends.get(topic), dict):
            return {str(partition): int(offset) for partition, offset in ends[topic].items()}
    return {}


def _output(port: Port, plan: QueryPlan, inputs: Mapping[str, Port], bootstrap_servers: str) -> Dataset:
    namespace, dataset = dataset_name(port, bootstrap_servers)
    facets: dict[str, Any] = {}
    if plan.output is not None:
        facets |= facet("schema", fields=schema_fields(plan.output))
    if plan.columns:
        names = {parameter: dataset_name(source, bootstrap_servers) for parameter, source in inputs.items()}
        fields = {
            column: {"inputFields": [_input_field(names[parameter], name, plain) for parameter, name, plain in sources]}
            for column, sources in plan.columns.items()
        }
        facets |= facet("columnLineage", fields=fields)
    return {"namespace": namespace, "name": dataset, "facets": facets, "outputFacets": {}}


def _input_field(name: tuple[str, str], column: str, unchanged: bool) -> dict[str, Any]:  # noqa: FBT001 - a field of a tuple
    subtype = "IDENTITY" if unchanged else "TRANSFORMATION"
    transformations = [{"type": "DIRECT", "subtype": subtype, "description": "", "masking": False}]
    return {"namespace": name[0], "name": name[1], "field": column, "transformations": transformations}


class LineageReporter:
    """Sends the events of one run. Called after each look at the queries; `end` sends the last events."""

    def __init__(self, send: Callable[[Event], None], clock: Callable[[], float], spark_version: str) -> None:
        self._send = send
        self._clock = clock
        self._spark_version = spark_version
        self._runs: dict[str, tuple[str, float]] = {}
        """Query -> id of its run, and when its last event was sent."""

    def __call__(self, work: PipelineRun) -> None:
        for running in work.running:
            started = self._runs.get(running.name)
            if started is None and running.query is not None:
                self._emit("START", str(uuid.uuid4()), running, work)
            elif started is not None and self._clock() - started[1] >= RUNNING_EVERY_S:
                self._emit("RUNNING", started[0], running, work)

    def end(self, work: PipelineRun, error: str = "") -> None:
        """A run that fails ends all its queries: the error names the step."""
        for running in work.running:
            if running.query is not None or running.last_error:
                self._runs.setdefault(running.name, (str(uuid.uuid4()), self._clock()))
            if running.name in self._runs:
                failed = bool(error) and error.startswith(f"step {running.step.name}:")
                kind = "FAIL" if failed else "COMPLETE" if not error else "ABORT"
                self._emit(kind, self._runs[running.name][0], running, work, error if failed else "")
        self._runs.clear()

    def _emit(self, kind: str, run_id: str, running: Running, work: PipelineRun, error: str = "") -> None:
        self._runs[running.name] = run_id, self._clock()
        plan = work.plans.get(running.name, QueryPlan())
        servers = work.settings.bootstrap_servers
        self._send(event(kind, run_id, running, plan, servers, spark=self._spark_version, error=error))
