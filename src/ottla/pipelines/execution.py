"""Runs the pipelines of a file in this process: with a display, a status file and signals. The session ends with the run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from ottla.model.user_error import UserError
from ottla.pipelines.build import RunSettings
from ottla.pipelines.display import Display, expectation_table, print_whole, status_table
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
) -> None:
    console = Console()
    try:
        for pipeline in pipelines:
            work = PipelineRun(session, pipeline, settings)
            _stop_on_signals(work)
            reporter = _Reporter(work, status_file)
            with Display(console, quiet=quiet) as display:
                try:
                    reporter(work)
                    call = _in_sequence(display, reporter)
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


def _in_sequence(
    first: Callable[[PipelineRun], None], second: Callable[[PipelineRun], None]
) -> Callable[[PipelineRun], None]:
    def call(work: PipelineRun) -> None:
        first(work)
        second(work)

    return call


def _stop_on_signals(work: PipelineRun) -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: work.stop())
