"""Runs an example from an empty folder: a log, events, Spark, the pipeline, and a comparison of every result."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ottla.env.logging import configure
from ottla.examples.feeding import Feeder, create_topics
from ottla.examples.outputs import Outputs, served_views
from ottla.examples.progress import Progress
from ottla.model.extras import require
from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from ottla.examples.catalogue import Example, Panel
    from ottla.examples.progress import ProgressStage
    from ottla.pipelines.build import RunSettings
    from ottla.pipelines.pipeline import Pipeline
    from ottla.pipelines.run import PipelineRun

TABLES = "OTTLA_TABLES"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SMALL = 100_000
"""Up to so many events a session with a small footprint is faster, because it starts faster."""
_BATCHES = 5
_LEAST_BATCH = 20_000


class ExampleFailed(UserError):
    """A result differs from the computation without Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRequest:
    example: Example
    events: int
    master: str = "local[*]"
    servers: str | None = None
    """A cluster to use; None starts a log."""
    keep: str | None = None
    """A folder for the tables; None removes them at the end."""


class Interruption:
    """SIGINT and SIGTERM stop the queries, and end the example after its step: Spark, the log and the folder end, too."""

    def __init__(self) -> None:
        self._number = 0
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self.work: PipelineRun | None = None

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Once more after the start of Spark, which has a handler of its own."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def check(self) -> None:
        if self._number:
            raise SystemExit(128 + self._number)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._number = number
        if self.work is not None:
            self.work.stop()


def run(request: ExampleRequest, console: Console) -> Sequence[Panel]:
    """The results as they were shown at the end. Raises UserError if a step fails or a result is wrong."""
    example = request.example
    require(f"the example {example.name}", "pyspark", "deltalake", "duckdb")
    configure(level="error")
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-example-"))
        folder = Path(request.keep or scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if request.keep is not None and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty: name a new directory for the tables of the example")
        progress = stack.enter_context(Progress(console, f"{example.name}: {example.sentence}"))
        with progress.stage("start a log" if request.servers is None else "find the log") as stage:
            servers = request.servers or stack.enter_context(_log())
            create_topics(servers, example)
            stage.note = servers
        stack.enter_context(tables_in(folder))
        pipelines = load(example)
        files = {pipeline.name: example.folder / "pipeline.py" for pipeline in pipelines}
        address = stack.enter_context(served_views(Path(scratch) / "state", files))
        outputs = Outputs(servers=servers, folder=folder, address=address)
        progress.panels = lambda: example.panels(outputs)
        _run_on_spark(request, pipelines, outputs, Path(scratch), progress, interruption)
        with progress.stage("compare") as stage:
            results = example.results(outputs)
            stage.note = compare(example.expected(example.events(request.events)), results)
        progress.shown_panels = example.panels(outputs)
    if not console.is_terminal:
        from ottla.examples.progress import panel_table

        for panel in progress.shown_panels:
            console.print(panel_table(panel))
    return progress.shown_panels


@contextmanager
def _log() -> Iterator[str]:
    from ottla.testing import Broker

    with Broker() as broker:
        yield broker.bootstrap_servers


@contextmanager
def tables_in(folder: Path) -> Iterator[None]:
    """Pipelines that are loaded meanwhile have their tables in this folder."""
    before = os.environ.get(TABLES)
    os.environ[TABLES] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[TABLES]
        else:
            os.environ[TABLES] = before


def load(example: Example) -> list[Pipeline]:
    from ottla.pipelines.pipeline import load_pipelines

    return load_pipelines(str(example.folder / "pipeline.py"))


def _run_on_spark(
    request: ExampleRequest,
    pipelines: Sequence[Pipeline],
    outputs: Outputs,
    scratch: Path,
    progress: Progress,
    interruption: Interruption,
) -> None:
    """The events are written while Spark starts."""
    from ottla.pipelines.run import PipelineRun

    feeder = Feeder(outputs.servers, request.example.events(request.events))
    feeder.start()
    try:
        with progress.stage("start Spark", lambda: (feeder.written, request.events)) as stage:
            session = _session(request, scratch)
            stage.note = f"{session.version} on {request.master}; events are written"
            interruption.listen()
        try:
            interruption.check()
            with progress.stage("feed", lambda: (feeder.written, request.events)) as stage:
                feeder.join()
                interruption.check()
                stage.note = f"{feeder.written:,} records"
            for pipeline in pipelines:
                with progress.stage(f"pipeline {pipeline.name}") as stage:
                    interruption.work = PipelineRun(
                        session, pipeline, _settings(outputs.servers, scratch, request.events)
                    )
                    interruption.work.once(progress.on_queries)
                    interruption.check()
                    stage.note = _rows(interruption.work, stage)
        finally:
            session.stop()
    finally:
        feeder.stop()


def _session(request: ExampleRequest, scratch: Path) -> SparkSession:
    from ottla.pipelines.session import spark

    small = request.events <= _SMALL and request.master.startswith("local")
    return spark(request.master, low_footprint=small, log_file=str(scratch / "spark.log"))


def _settings(servers: str, scratch: Path, events: int) -> RunSettings:
    """All records that the topics have, in a few batches."""
    from ottla.pipelines.build import RunSettings

    return RunSettings(
        bootstrap_servers=servers,
        checkpoints=str(scratch / "checkpoints"),
        max_offsets_per_trigger=max(_LEAST_BATCH, events // _BATCHES),
    )


def _rows(work: PipelineRun, stage: ProgressStage) -> str:
    rows = sum(running.rows for running in work.running)
    rate = rows / max(time.perf_counter() - stage.began, 0.001)
    return f"{len(work.running)} queries, {rows:,} rows in, {rate:,.0f} rows/s, exactly once"


def compare(expected: dict[str, Any], results: dict[str, Any]) -> str:
    """A sentence about equal results. Raises ExampleFailed with the first difference."""
    for name in {**expected, **results}:
        if expected.get(name) != results.get(name):
            raise ExampleFailed(f"{name}: {_difference(expected.get(name), results.get(name))}")
    return "equal to plain Python: " + ", ".join(f"{_size(value):,} {name}" for name, value in results.items())


def _difference(expected: Any, result: Any) -> str:
    if isinstance(expected, dict) and isinstance(result, dict):
        keys = [key for key in {**expected, **result} if expected.get(key) != result.get(key)]
        shown = [f"{key}: {result.get(key)} instead of {expected.get(key)}" for key in keys[:3]]
        return f"{len(keys):,} differ, such as {'; '.join(shown)}"
    return f"{result} instead of {expected}"


def _size(value: Any) -> int:
    return value if isinstance(value, int) else len(value)
