"""Pipelines of one state directory as Prometheus reads them, from their status files. `ottla pipeline serve` answers with them.

Spark reports each batch of a query in a progress event (what a StreamingQueryListener gets). The driver writes the events
into the status file, so a scrape starts nothing in a JVM and works while the driver is down.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.model.peer_text import cut
from ottla.pipelines.supervisor import STATES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PipelineMetric(NamedTuple):
    name: str
    kind: str
    doc: str
    fact: str = ""
    """The field of a query's status with the value; empty for a metric that is computed."""
    scale: float = 1.0


_STATE, _AGE = "ottla_pipeline_state", "ottla_pipeline_status_age_seconds"
_ROWS = "ottla_pipeline_expectation_rows_total"
METRICS = (
    PipelineMetric(_STATE, "gauge", "1 for the state that the pipeline is in, 0 for all other states."),
    PipelineMetric(_AGE, "gauge", "Time since the driver wrote the status of the pipeline."),
    PipelineMetric("ottla_pipeline_rows_total", "counter", "Input rows of finished batches since the start, by query.", "rows"),
    PipelineMetric("ottla_pipeline_rows_per_second", "gauge", "Input rows of the last batch by its duration.", "rows_per_second"),
    PipelineMetric("ottla_pipeline_lag_records", "gauge", "Records of the inputs that the query has not read.", "lag"),
    PipelineMetric("ottla_pipeline_lag_seconds", "gauge", "Time that the query needs for these records at its last rate.", "lag_seconds"),
    PipelineMetric("ottla_pipeline_batch", "gauge", "Number of the last batch.", "batch"),
    PipelineMetric("ottla_pipeline_batch_seconds", "gauge", "Duration of the last batch.", "batch_ms", 0.001),
    PipelineMetric("ottla_pipeline_state_rows", "gauge", "Rows in the state of the query.", "state_rows"),
    PipelineMetric("ottla_pipeline_state_bytes", "gauge", "Memory of the state of the query.", "state_bytes"),
    PipelineMetric("ottla_pipeline_restarts_total", "counter", "Restarts of the query after failures.", "restarts"),
    PipelineMetric(_ROWS, "counter", "Rows that passed or failed an expectation since the start (label result)."),
)  # fmt: skip

Labels = Mapping[str, str]


def exposition(statuses: Iterable[Mapping[str, Any]], now: float | None = None) -> str:
    """The text of an answer: the connectors of the directory are left out."""
    pipelines = [status for status in statuses if status.get("kind") != "connector"]
    at = time.time() if now is None else now
    lines = []
    for metric in METRICS:
        lines += [f"# HELP {metric.name} {metric.doc}", f"# TYPE {metric.name} {metric.kind}"]
        for status in pipelines:
            lines += [f"{metric.name}{_braced(labels)} {value:.15g}" for labels, value in _samples(metric, status, at)]
    return "\n".join(lines) + "\n"


def _samples(metric: PipelineMetric, status: Mapping[str, Any], now: float) -> Iterator[tuple[Labels, float]]:
    pipeline = {"pipeline": str(status.get("name"))}
    queries = status.get("queries") or ()
    if metric.name == _STATE:
        for state in STATES:
            yield pipeline | {"state": state}, float(status.get("state") == state)
    elif metric.name == _AGE:
        if "at" in status:
            yield pipeline, max(0.0, now - float(status["at"]))
    elif metric.name == _ROWS:
        for query in queries:
            for expectation in query.get("expectations") or ():
                labels = pipeline | {"query": _query(query), "expectation": cut(str(expectation["name"]))}
                for result in ("passed", "failed"):
                    yield labels | {"result": result}, float(expectation[result])
    else:
        for query in queries:
            value = query.get(metric.fact)
            if value is not None:
                yield pipeline | {"query": _query(query)}, float(value) * metric.scale


def _query(query: Mapping[str, Any]) -> str:
    return str(query.get("name")).partition("/")[2]


def _braced(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
