"""A query of a run, and what Spark's progress events report of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.pipelines.checked_rows import failed_counts
from ottla.pipelines.expectations import Expectation
from ottla.pipelines.pipeline import Step
from ottla.pipelines.ports import Port
from ottla.pipelines.positions import RESERVED_KEY
from ottla.pipelines.supervisor import CATCHING_UP, STARTING, WAITING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_EMPTY_BATCHES = 2
CATCHING_UP_S = 60.0
"""A query whose unread records need more time than this, at its last rate, is catching up again."""


@dataclass(slots=True)
class Running:
    """One query and what is known of it."""

    name: str
    step: Step
    start: Callable[[], StreamingQuery]
    expectations: tuple[Expectation, ...] = ()
    inputs: Mapping[str, Port] = field(default_factory=dict)
    """By parameter of the step's function."""
    outputs: tuple[Port, ...] = ()
    query: StreamingQuery | None = None
    restarts: int = 0
    failures_in_a_row: int = 0
    again_at: float = 0.0
    rows: int = 0
    seen_at: str = ""
    """The start of the last counted trigger; a trigger without records has the number of the next batch."""
    last_error: str = ""
    progress: dict[str, Any] = field(default_factory=dict)
    reached_end: bool = False
    """A batch of this run has left nothing unread."""
    checked_rows: int = 0
    failed_rows: list[int] = field(default_factory=list)
    """By expectation, since the start of the run."""

    def look(self) -> None:
        """Takes over the newest progress and counts rows."""
        last = self.query.lastProgress if self.query is not None else None
        if last is None:
            return
        self.progress = dict(last)
        self.reached_end = self.reached_end or not lag_of(self.progress)
        for progress in self.query.recentProgress if self.query is not None else []:
            if progress["timestamp"] > self.seen_at:
                self.seen_at = progress["timestamp"]
                self.rows += _input_rows(progress)
                self._count_failures(progress)
                self.failures_in_a_row = 0

    @property
    def lag(self) -> int:
        return lag_of(self.progress)

    @property
    def phase(self) -> str:
        """`waiting`: the query starts again after a pause; `last_error` has the reason."""
        if self.query is None:
            return WAITING if self.last_error else STARTING
        if not self.query.isActive:
            return "ended"
        if not self.progress:
            return STARTING
        lag, rate = lag_of(self.progress), float(self.progress.get("processedRowsPerSecond") or 0.0)
        if lag and (not self.reached_end or lag > rate * CATCHING_UP_S):
            return CATCHING_UP
        return "running"

    def _count_failures(self, progress: Mapping[str, Any]) -> None:
        rows, failed = failed_counts(self.expectations, progress)
        self.checked_rows += rows
        before = self.failed_rows or [0] * len(failed)
        self.failed_rows = [count + more for count, more in zip(before, failed, strict=True)]


def lag_of(progress: Mapping[str, Any]) -> int:
    """The records that the query has not read, by Spark's last look at the ends of its inputs."""
    return sum(_lag(source) for source in progress.get("sources") or ())


def _lag(source: Mapping[str, Any]) -> int:
    """Records between what a source has read and what its log held then; other sources have none."""
    ended, latest = parsed_offsets(source.get("endOffset")), parsed_offsets(source.get("latestOffset"))
    if not isinstance(ended, dict) or not isinstance(latest, dict):
        return 0
    lag = 0
    for topic, parts in latest.items():
        if isinstance(parts, dict) and topic != RESERVED_KEY:
            read = ended.get(topic)
            for partition, offset in parts.items():
                lag += max(0, int(offset) - int(read.get(partition, 0) if isinstance(read, dict) else 0))
    return lag


def parsed_offsets(offsets: Any) -> Any:
    """Spark Connect gives offsets as text."""
    try:
        return json.loads(offsets) if isinstance(offsets, str) else offsets
    except ValueError:
        return None


def only_waits_for_the_clock(recent: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a query over what is there has read everything and only repeats empty batches.

    Spark plans such batches for ever while a state has timers of processing time. Timers that are due have run in the
    first of two empty batches; a batch that moves the watermark is not empty in this sense.
    """
    last = [(_input_rows(progress), progress["batchId"], _standing(progress)) for progress in recent[-2:]]
    if len(last) < _EMPTY_BATCHES:
        return False
    (rows, batch, standing), (rows_after, batch_after, standing_after) = last
    return not rows and not rows_after and batch < batch_after and standing == standing_after


def _standing(progress: Mapping[str, Any]) -> tuple[Any, ...]:
    watermark = (progress.get("eventTime") or {}).get("watermark")
    return watermark, *(str(source["endOffset"]) for source in progress.get("sources") or ())


def _input_rows(progress: Mapping[str, Any]) -> int:
    """Spark Connect gives the rows of each source only."""
    total = progress["numInputRows"]
    return int(total) if total is not None else sum(int(source["numInputRows"]) for source in progress["sources"])
