"""Requests as spans for OpenTelemetry. Only a node with `ottla.traces.endpoint` has this object in the place of its counts.

A span is one request from its frame to its answer, with the topics that were written or read. Batches stay closed, so a
trace context in the headers of records is not seen: each span is the root of its own trace. Finished spans wait in a
bounded queue; what does not fit is counted and gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metrics import BrokerMetrics

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.planes import NodePlane
    from ottla.env.seams import Clock

MAX_WAITING = 8_192
_MAX_OPEN = 4_096
"""Requests whose topics are remembered until they are answered; a closed connection leaves some behind."""


class RequestSpan(NamedTuple):
    api_key: int
    version: int
    client_id: str
    principal: str
    peer: str
    begin_ms: float
    """Since 1970."""
    taken_ms: float
    topics: tuple[str, ...]
    records: int
    size: int


class _Touched:
    __slots__ = ("records", "size", "topics")

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.records = 0
        self.size = 0


class TracingMetrics(BrokerMetrics):
    def __init__(self, clock: Clock, ratio: float) -> None:
        super().__init__(clock)
        self._ratio = ratio
        self._due = 0.0
        self._open: dict[RequestContext[NodePlane], _Touched] = {}
        self._finished: deque[RequestSpan] = deque()
        self.spans_dropped = 0

    def answered(self, context: RequestContext[NodePlane]) -> None:
        super().answered(context)
        touched = self._open.pop(context, None)
        # Evenly spread rather than drawn: of every 1 / ratio requests one is kept.
        self._due += self._ratio
        if self._due < 1:
            return
        self._due -= 1
        if len(self._finished) >= MAX_WAITING:
            self.spans_dropped += 1
            return
        taken_ms = self._clock.monotonic_ms() - context.started_ms
        self._finished.append(
            RequestSpan(
                context.api_key,
                context.version,
                context.client_id or "",
                context.principal,
                context.client_host,
                self._clock.time_ms() - taken_ms,
                taken_ms,
                tuple(sorted(touched.topics)) if touched is not None else (),
                touched.records if touched is not None else 0,
                touched.size if touched is not None else 0,
            )
        )

    def produced(self, context: RequestContext[NodePlane], topic: str, records: int, size: int) -> None:
        super().produced(context, topic, records, size)
        self._touch(context, topic, records, size)

    def fetched(self, context: RequestContext[NodePlane], topic: str, size: int) -> None:
        super().fetched(context, topic, size)
        if size:
            self._touch(context, topic, 0, size)

    def take(self, most: int) -> list[RequestSpan]:
        """The oldest finished spans, gone from here."""
        return [self._finished.popleft() for _ in range(min(most, len(self._finished)))]

    def _touch(self, context: RequestContext[NodePlane], topic: str, records: int, size: int) -> None:
        touched = self._open.get(context)
        if touched is None:
            if len(self._open) >= _MAX_OPEN:
                self._open.clear()
            touched = self._open[context] = _Touched()
        touched.topics.add(topic)
        touched.records += records
        touched.size += size
