"""Runs the pipelines of a file in this process: with a display, a status file and signals. The session ends with the run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console

from ottla.model.user_error import UserError
from ottla.pipelines.build import RunSettings
from ottla.pipelines.display import Display, expectation_table, print_whole, status_table
from ottla.pipelines.lineage_sinks import LineageQueue, lineage_writer
from ottla.pipelines.openlineage import LineageReporter
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.run import PipelineRun
from ottla.pipelines.status import pipeline_status
from ottla.pipelines.supervisor import write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATUS_INTERVAL_S = 0.5


def refuse_several(file: str, pipelines: Sequence[Pipeline], *, once: bool) -> None:
    if len(pipelines) > 1 and not once:
        raise UserError(
            f"{file} holds {', '.join(pipeline.name for pipeline in pipelines)}: choose one with --name, or use start"
        )


def run_pipelines(
    session: SparkSession,
    pipelines: Sequence[Pipeline],
    settings: RunSettings,
    *,
    once: bool,
    quiet: bool,
    status_file: str | None = None,
    lineage: str | None = None,
) -> None:
    console = Console()
    client = {"bootstrap.servers": settings.bootstrap_servers, **settings.client}
    events = LineageQueue(lineage_writer(lineage, client)) if lineage else None
    try:
        for pipeline in pipelines:
            work = PipelineRun(session, pipeline, settings)
            _stop_on_signals(work)
            reporter = _Reporter(work, status_file)
            with Display(console, quiet=quiet) as display, _Lineage(work, events, session.version) as traced:
                try:
                    reporter(work)
                    call = _in_sequence(display, reporter, traced)
                    work.once(call) if once else work.continuously(call)
                except BaseException as problem:  # raised again below; the status file must show the failure first
                    reporter.end("failed", str(problem))
                    raise
            reporter.end("finished" if once and not work.is_stopping else "stopped")
            status = pipeline_status(work, "done")
            print_whole(console, status_table(status))
            expectations = expectation_table(status)
            if expectations is not None:
                print_whole(console, expectations)
    finally:
        if events is not None:
            events.close()
        session.stop()


class _Reporter:
    """Writes the status file, at most twice a second."""

    def __init__(self, work: PipelineRun, path: str | None) -> None:
        self._work = work
        self._path = path
        self._written = 0.0

    def __call__(self, work: PipelineRun) -> None:
        if self._path is not None and time.monotonic() - self._written > _STATUS_INTERVAL_S:
            self._written = time.monotonic()
            self._write("running", "")
        del work

    def end(self, state: str, error: str = "") -> None:
        if self._path is not None:
            self._write(state, error)

    def _write(self, state: str, error: str) -> None:
        write_json(str(self._path), pipeline_status(self._work, state, error))


class _Lineage:
    """The lineage of one run, if somebody wants the events."""

    def __init__(self, work: PipelineRun, events: LineageQueue | None, spark_version: str) -> None:
        self._work = work
        work.is_traced = events is not None
        self._reporter = None if events is None else LineageReporter(events.send, time.monotonic, spark_version)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reporter is not None:
            self._reporter.end(self._work, str(error) if error is not None else "")

    def __call__(self, work: PipelineRun) -> None:
        if self._reporter is not None:
            self._reporter(work)


def _in_sequence(*calls: Callable[[PipelineRun], None]) -> Callable[[PipelineRun], None]:
    def call(work: PipelineRun) -> None:
        for observer in calls:
            observer(work)

    return call


def _stop_on_signals(work: PipelineRun) -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: work.stop())
