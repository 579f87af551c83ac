"""The status of a running pipeline: rows, rates, lag, batch time and state, from Spark's own progress reports."""

from __future__ import annotations

import time
from typing import Any

from ottla.pipelines.graph import graph
from ottla.pipelines.run import PipelineRun
from ottla.pipelines.running import Running
from ottla.pipelines.supervisor import CATCHING_UP, STARTING, WAITING


def query_status(running: Running) -> dict[str, Any]:
    progress = running.progress
    lag = running.lag
    rate = float(progress.get("processedRowsPerSecond") or 0.0)
    durations = progress.get("durationMs") or {}
    states = progress.get("stateOperators") or []
    active = running.query is not None and running.query.isActive
    return {
        "name": running.name,
        "step": running.step.name,
        "id": "" if running.query is None else str(running.query.id),
        "active": active,
        "phase": running.phase,
        "rows": running.rows,
        "rows_per_second": round(rate, 1),
        "input_rows_per_second": round(float(progress.get("inputRowsPerSecond") or 0.0), 1),
        "lag": lag,
        "lag_seconds": round(lag / rate, 1) if lag and rate else 0.0,
        "batch": progress.get("batchId", -1),
        "batch_ms": durations.get("triggerExecution", 0),
        "phases_ms": {name: ms for name, ms in durations.items() if name != "triggerExecution"},
        "watermark": (progress.get("eventTime") or {}).get("watermark", ""),
        "state_rows": sum(int(state.get("numRowsTotal", 0)) for state in states),
        "state_bytes": sum(int(state.get("memoryUsedBytes", 0)) for state in states),
        "state_partitions": max((int(state.get("numShufflePartitions", 0)) for state in states), default=0),
        "restarts": running.restarts,
        "error": running.last_error,
        "expectations": _expectations(running),
    }


def _phase(state: str, run: PipelineRun) -> str:
    """Of a pipeline that runs: the least advanced phase of its queries. Empty for all other states."""
    if state != "running":
        return ""
    phases = {running.phase for running in run.running}
    if run.waiting or WAITING in phases:
        return WAITING
    return next((phase for phase in (STARTING, CATCHING_UP) if phase in phases), "running" if phases else STARTING)


def _expectations(running: Running) -> list[dict[str, Any]]:
    """Counts since the start of the run: rows of batches that ended, by expectation."""
    failed_rows = running.failed_rows or [0] * len(running.expectations)
    return [
        {
            "name": expectation.name,
            "condition": expectation.condition,
            "on_fail": expectation.on_fail,
            "passed": running.checked_rows - failed,
            "failed": failed,
        }
        for expectation, failed in zip(running.expectations, failed_rows, strict=True)
    ]


def pipeline_status(run: PipelineRun, state: str, error: str = "") -> dict[str, Any]:
    """The shape that status files and `ottla pipeline serve` give out."""
    queries = [query_status(running) for running in run.running]
    drawn = graph(run.pipeline)
    return {
        "name": run.pipeline.name,
        "state": state,
        "phase": _phase(state, run),
        "at": time.time(),
        "rows": sum(query["rows"] for query in queries),
        "rows_per_second": round(sum(query["rows_per_second"] for query in queries if query["active"]), 1),
        "lag": sum(query["lag"] for query in queries),
        "inputs": drawn["inputs"],
        "outputs": drawn["outputs"],
        "error": error or next((query["error"] for query in queries if query["error"]), ""),
        "warnings": [*run.warnings, *run.waiting.values()],
        "ui": run.ui_address,
        "queries": queries,
    }
