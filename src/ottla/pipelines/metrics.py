"""Pipelines of one state directory as Prometheus reads them, from their status files. `ottla pipeline serve` answers with them.

Spark reports each batch of a query in a progress event (what a StreamingQueryListener gets). The driver writes the events
into the status file, so a scrape starts nothing in a JVM and works while the driver is down.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ottla.model.peer_text import cut
from ottla.pipelines.supervisor import CATCHING_UP, STARTING, STATES, WAITING

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PipelineMetric(NamedTuple):
    name: str
    kind: str
    doc: str
    fact: str = ""
    """The field of a query's status with the value; empty for a metric that is computed."""
    scale: float = 1.0


_PHASES = (STARTING, WAITING, CATCHING_UP)
"""States beside those of the status file: what a pipeline that runs does."""
_STATE, _AGE = "ottla_pipeline_state", "ottla_pipeline_status_age_seconds"
_PHASE_SECONDS, _WATERMARK = "ottla_pipeline_batch_phase_seconds", "ottla_pipeline_watermark_timestamp_seconds"
_ROWS = "ottla_pipeline_expectation_rows_total"
METRICS = (
    PipelineMetric(_STATE, "gauge", "1 for the state that the pipeline is in, 0 for all other states."),
    PipelineMetric(_AGE, "gauge", "Time since the driver wrote the status of the pipeline."),
    PipelineMetric("ottla_pipeline_rows_total", "counter", "Input rows of finished batches since the start, by query.", "rows"),
    PipelineMetric("ottla_pipeline_rows_per_second", "gauge", "Input rows of the last batch by its duration.", "rows_per_second"),
    PipelineMetric("ottla_pipeline_input_rows_per_second", "gauge", "Input rows that arrive.", "input_rows_per_second"),
    PipelineMetric("ottla_pipeline_lag_records", "gauge", "Records of the inputs that the query has not read.", "lag"),
    PipelineMetric("ottla_pipeline_lag_seconds", "gauge", "Time that the query needs for these records at its last rate.", "lag_seconds"),
    PipelineMetric("ottla_pipeline_batch", "gauge", "Number of the last batch.", "batch"),
    PipelineMetric("ottla_pipeline_batch_seconds", "gauge", "Duration of the last batch.", "batch_ms", 0.001),
    PipelineMetric(_PHASE_SECONDS, "gauge", "Duration of the parts of the last batch, under Spark's names (label phase)."),
    PipelineMetric(_WATERMARK, "gauge", "The watermark of the query, in seconds since 1970; missing without a watermark."),
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
    if metric.name == _STATE:
        state_now = status.get("phase") or status.get("state")
        for state in dict.fromkeys((*STATES, *_PHASES)):
            yield pipeline | {"state": state}, float(state_now == state)
    elif metric.name == _AGE:
        if "at" in status:
            yield pipeline, max(0.0, now - float(status["at"]))
    else:
        for query in status.get("queries") or ():
            labels = pipeline | {"query": _query(query)}
            for more, value in _query_samples(metric, query):
                yield labels | more, value


def _query_samples(metric: PipelineMetric, query: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], float]]:
    if metric.name == _ROWS:
        for expectation in query.get("expectations") or ():
            for result in ("passed", "failed"):
                labels = {"expectation": cut(str(expectation["name"])), "result": result}
                yield labels, float(expectation[result])
    elif metric.name == _PHASE_SECONDS:
        for phase, ms in (query.get("phases_ms") or {}).items():
            yield {"phase": str(phase)}, float(ms) / 1000
    elif metric.name == _WATERMARK:
        if query.get("watermark"):
            yield {}, datetime.fromisoformat(str(query["watermark"])).timestamp()
    elif query.get(metric.fact) is not None:
        yield {}, float(query[metric.fact]) * metric.scale


def _query(query: Mapping[str, Any]) -> str:
    return str(query.get("name")).partition("/")[2]


def _braced(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
