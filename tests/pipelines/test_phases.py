"""What a pipeline does while it is under way: it starts, waits, catches up or follows its inputs; as status and as metrics."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipelines import supervisor
from ottla.pipelines.display import status_table
from ottla.pipelines.metrics import METRICS, exposition
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import topic
from ottla.pipelines.running import Running, lag_of
from ottla.pipelines.status import pipeline_status
from ottla.pipelines.supervisor import CATCHING_UP, STARTING, WAITING


def batch(number: int, read: int, latest: int, rate: float = 10.0) -> dict[str, Any]:
    source = {
        "endOffset": {"orders": {"0": read}, "@ottla": {"version": 1}},
        "latestOffset": f'{{"orders": {{"0": {latest}}}}}',
    }
    return {
        "batchId": number, "timestamp": f"2026-11-19T10:00:{number:02}.000Z", "numInputRows": read, "sources": [source],
        "processedRowsPerSecond": rate, "inputRowsPerSecond": 4.0, "durationMs": {"triggerExecution": 250, "addBatch": 200},
        "eventTime": {"watermark": "2026-11-19T10:00:00.000Z"},
    }  # fmt: skip


def query(*batches: dict[str, Any], active: bool = True) -> SimpleNamespace:
    return SimpleNamespace(isActive=active, lastProgress=batches[-1] if batches else None, recentProgress=list(batches))


def running(*batches: dict[str, Any], **facts: Any) -> Running:
    step: Any = SimpleNamespace(name="totals")
    made = Running(name="shop/totals", step=step, start=lambda: None, query=query(*batches), **facts)  # type: ignore[arg-type,return-value]
    for number in range(len(batches)):
        made.query = query(*batches[: number + 1])  # type: ignore[assignment]
        made.look()
    return made


def test_a_query_catches_up_until_nothing_is_left_and_again_when_it_falls_far_behind() -> None:
    assert running().phase == STARTING
    assert running(batch(0, read=5, latest=9)).phase == CATCHING_UP
    assert running(batch(0, read=5, latest=9), batch(1, read=9, latest=9)).phase == "running"
    followed = batch(0, read=9, latest=9), batch(1, read=10, latest=20)
    assert running(*followed).phase == "running", "a second of work is no backlog"
    assert running(*followed, batch(2, read=11, latest=900)).phase == CATCHING_UP
    assert running(batch(0, 1, 1), last_error="full").phase == "running"
    ended = running(batch(0, 1, 1))
    ended.query = query(batch(0, 1, 1), active=False)  # type: ignore[assignment]
    assert ended.phase == "ended"
    failed = running(last_error="full")
    failed.query = None
    assert failed.phase == WAITING
    assert lag_of(batch(0, read=5, latest=9)) == 4


def status(*queries: Running, waiting: dict[str, str] | None = None, state: str = "running") -> dict[str, Any]:
    made = Pipeline("shop")
    made.step(reads={"rows": topic("orders")}, writes=topic("out"))(lambda rows: rows)
    work: Any = SimpleNamespace(
        running=list(queries), pipeline=made, warnings=["new"], waiting=waiting or {}, ui_address=""
    )
    return pipeline_status(work, state)


@pytest.mark.parametrize(
    ("queries", "phase"),
    [
        ([], STARTING),
        ([running(), running(batch(0, 5, 9))], STARTING),
        ([running(batch(0, 5, 9)), running(batch(0, 9, 9))], CATCHING_UP),
        ([running(batch(0, 9, 9))], "running"),
    ],
)
def test_a_pipeline_is_as_far_as_its_last_query(queries: list[Running], phase: str) -> None:
    shown = status(*queries)
    assert (shown["state"], shown["phase"]) == ("running", phase)
    assert str(status_table(shown).title) == f"shop: {phase}"


def test_a_step_that_waits_for_a_table_is_reported() -> None:
    shown = status(running(batch(0, 9, 9)), waiting={"placed": "step placed waits"})
    assert (shown["phase"], shown["warnings"]) == (WAITING, ["new", "step placed waits"])
    assert status(state="failed")["phase"] == ""


def test_a_pipeline_whose_process_is_gone_has_no_phase(tmp_path: Path) -> None:
    state = supervisor.state_directory(str(tmp_path))
    supervisor.write_json(str(tmp_path / "shop.status.json"), status(running(batch(0, 9, 9))))
    shown = supervisor.current(state, "shop")
    assert (shown["state"], shown["phase"]) == ("dead", "")
    assert str(status_table(shown).title) == "shop: dead"
    assert 'ottla_pipeline_state{pipeline="shop",state="dead"} 1' in exposition([shown]).splitlines()


def test_metrics_of_progress() -> None:
    shown = status(running(batch(0, 5, 9)))
    text = exposition([shown, {"name": "copy", "kind": "connector", "state": "running"}])
    labels = 'pipeline="shop",query="totals"'
    for line in (
        'ottla_pipeline_state{pipeline="shop",state="catching up"} 1',
        'ottla_pipeline_state{pipeline="shop",state="running"} 0',
        f"ottla_pipeline_lag_records{{{labels}}} 4",
        f"ottla_pipeline_lag_seconds{{{labels}}} 0.4",
        f"ottla_pipeline_batch_seconds{{{labels}}} 0.25",
        f'ottla_pipeline_batch_phase_seconds{{{labels},phase="addBatch"}} 0.2',
        f"ottla_pipeline_watermark_timestamp_seconds{{{labels}}} 1795082400",
        f"ottla_pipeline_input_rows_per_second{{{labels}}} 4",
    ):
        assert line in text.splitlines(), line
    assert "copy" not in text
    assert {metric.name for metric in METRICS} <= set(text.replace("{", " ").split())
