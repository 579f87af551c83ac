"""The way of audit events from a server's loop to their destinations: a bounded queue and a thread for each of them.

A request never waits for its event, and a destination that is away holds up no other. At most `MAX_EVENTS`
wait for a destination. Further events are only counted, and the count is written as an event once there is room again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.audit.events import Event, is_worth_noting, request_event
from ottla.client.audit.sinks import AuditSink, open_sink
from ottla.env.logging import get_logger
from ottla.security.web import App, Receive, Scope, SendEvent

log = get_logger(__name__)

MAX_EVENTS = 10_000
BATCH = 500
STOP_S = 5.0
_PAUSES_S = (0.2, 1.0, 5.0, 30.0)


class AuditTrail:
    def __init__(self, surface: str, sinks: Sequence[AuditSink], *, max_events: int = MAX_EVENTS) -> None:
        self._surface = surface
        self._lanes = [_Lane(sink, surface, max_events) for sink in sinks]

    @classmethod
    def open(cls, surface: str, destinations: Sequence[str], kafka: Mapping[str, Any] | None = None) -> AuditTrail:
        """Raises AuditDestinationError for a destination that cannot be used."""
        return cls(surface, [open_sink(destination, f"ottla-{surface}", kafka) for destination in destinations])

    def record(self, event: Event) -> None:
        for lane in self._lanes:
            lane.add(event)

    def around(self, app: App) -> App:
        """The application, with every change and every refusal recorded. Put it around what checks logins."""
        if not self._lanes:
            return app

        async def watched(scope: Scope, receive: Receive, send: SendEvent) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            status = 0

            async def note(message: Any) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    self._note(scope, status)
                await send(message)

            try:
                await app(scope, receive, note)
            finally:
                if status == 0:
                    self._note(scope, 500)

        return watched

    def _note(self, scope: Scope, status: int) -> None:
        if is_worth_noting(scope, status):
            self.record(request_event(self._surface, scope, status))

    def close(self) -> None:
        """Write what waits, for a few seconds at most."""
        deadline = time.monotonic() + STOP_S
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.join(max(0.0, deadline - time.monotonic()))


class _Lane:
    """One destination: its queue and its thread."""

    def __init__(self, sink: AuditSink, surface: str, max_events: int) -> None:
        self._sink = sink
        self._surface = surface
        self._max_events = max_events
        self._events: deque[Event] = deque()
        self._dropped = 0
        self._failures = 0
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"audit-{surface}", daemon=True)
        self._thread.start()

    def add(self, event: Event) -> None:
        with self._changed:
            if len(self._events) >= self._max_events:
                self._dropped += 1
                return
            self._events.append(event)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self._dropped or self._stopping)
                if not self._events and not self._dropped:
                    break
                batch = self._next()
            if not self._write(batch):
                with self._changed:
                    if self._stopping:
                        break
                    self._changed.wait_for(lambda: self._stopping, _PAUSES_S[min(self._failures, len(_PAUSES_S)) - 1])
        self._sink.close()

    def _next(self) -> list[Event]:
        """They stay in the queue until they are written."""
        if self._dropped and len(self._events) < self._max_events:
            lost = {"event": "dropped", "surface": self._surface, "count": self._dropped}
            self._events.append({"timestamp_ms": int(time.time() * 1000), **lost})
            self._dropped = 0
        return [self._events[index] for index in range(min(BATCH, len(self._events)))]

    def _write(self, batch: list[Event]) -> bool:
        try:
            self._sink.write(batch)
        except Exception as error:  # noqa: BLE001 - a supervisor: without this thread nothing is recorded any more
            self._failures += 1
            if self._failures == 1:
                log.error("audit.not_written", destination=self._sink.name, reason=str(error))
            return False
        if self._failures:
            log.info("audit.written_again", destination=self._sink.name)
            self._failures = 0
        with self._changed:
            for _ in batch:
                self._events.popleft()
        return True
