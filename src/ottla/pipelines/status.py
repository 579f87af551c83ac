"""The status of a running pipeline: rows, rates, lag, batch time and state, from Spark's own progress reports."""

from __future__ import annotations

import json
import time
from typing import Any

from ottla.pipelines.graph import graph
from ottla.pipelines.positions import RESERVED_KEY
from ottla.pipelines.run import PipelineRun, Running


def query_status(running: Running) -> dict[str, Any]:
    progress = running.progress
    sources = progress.get("sources") or []
    lag = sum(_lag(source) for source in sources)
    rate = float(progress.get("processedRowsPerSecond") or 0.0)
    states = progress.get("stateOperators") or []
    active = running.query is not None and running.query.isActive
    return {
        "name": running.name,
        "step": running.step.name,
        "id": "" if running.query is None else str(running.query.id),
        "active": active,
        "rows": running.rows,
        "rows_per_second": round(rate, 1),
        "lag": lag,
        "lag_seconds": round(lag / rate, 1) if lag and rate else 0.0,
        "batch": progress.get("batchId", -1),
        "batch_ms": (progress.get("durationMs") or {}).get("triggerExecution", 0),
        "state_rows": sum(int(state.get("numRowsTotal", 0)) for state in states),
        "state_bytes": sum(int(state.get("memoryUsedBytes", 0)) for state in states),
        "state_partitions": max((int(state.get("numShufflePartitions", 0)) for state in states), default=0),
        "restarts": running.restarts,
        "error": running.last_error,
    }


def pipeline_status(run: PipelineRun, state: str, error: str = "") -> dict[str, Any]:
    """The shape that status files and `ottla pipeline serve` give out."""
    queries = [query_status(running) for running in run.running]
    drawn = graph(run.pipeline)
    return {
        "name": run.pipeline.name,
        "state": state,
        "at": time.time(),
        "rows": sum(query["rows"] for query in queries),
        "rows_per_second": round(sum(query["rows_per_second"] for query in queries if query["active"]), 1),
        "lag": sum(query["lag"] for query in queries),
        "inputs": drawn["inputs"],
        "outputs": drawn["outputs"],
        "error": error or next((query["error"] for query in queries if query["error"]), ""),
        "warnings": list(run.warnings),
        "ui": run.ui_address,
        "queries": queries,
    }


def _lag(source: dict[str, Any]) -> int:
    """Records between what a source has read and what its log held then; other sources have none."""
    ended, latest = _parsed(source.get("endOffset")), _parsed(source.get("latestOffset"))
    if not isinstance(ended, dict) or not isinstance(latest, dict):
        return 0
    lag = 0
    for topic, parts in latest.items():
        if isinstance(parts, dict) and topic != RESERVED_KEY:
            read = ended.get(topic)
            for partition, offset in parts.items():
                lag += max(0, int(offset) - int(read.get(partition, 0) if isinstance(read, dict) else 0))
    return lag


def _parsed(offsets: Any) -> Any:
    """Spark Connect gives offsets as text."""
    try:
        return json.loads(offsets) if isinstance(offsets, str) else offsets
    except ValueError:
        return None
