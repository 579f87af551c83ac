"""The events of the active controller, one after the other, each in as many slices as its size needs.

An event is a generator: what it yields is work that may pause between two elements (`ottla.model.pace`); what stands
between two yields is done in one step. No other event runs before an event has ended, so a decision, its records and their
replay belong together although the loop serves other requests meanwhile. Without `InSlices` an event runs to its end at
once: at start, in the simulator and in tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

Work = Callable[[], Any]
Event = Generator[Work, Any, None]
OnDone = Callable[[Any, Exception | None], None]
InSlices = Callable[[Work, OnDone], None]
"""Run the work in slices, then call `OnDone` with its result, or with the exception that the work raised."""


class _Waiting(NamedTuple):
    event: Event
    on_error: Callable[[Exception], None]


class ControllerEvents:
    def __init__(self, in_slices: InSlices | None = None) -> None:
        self._in_slices = in_slices
        self._urgent: deque[_Waiting] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._running: _Waiting | None = None
        self._draining = False

    def run(self, event: Event, on_error: Callable[[Exception], None], *, urgent: bool = False) -> None:
        """Run the event now, or after the events that wait. Heartbeats and the controller's own duties are urgent: a
        broker's session must not end because clients' large requests wait.
        """
        if self._in_slices is None:
            _run_at_once(event)
            return
        (self._urgent if urgent else self._waiting).append(_Waiting(event, on_error))
        self._drain()

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            while self._running is None and (self._urgent or self._waiting):
                self._running = (self._urgent or self._waiting).popleft()
                self._advance(None, None)
        finally:
            self._draining = False
            # Only a raised failure leaves events behind: the failure goes to the loop, and the other events run.
            if self._running is None and (self._urgent or self._waiting):
                self._drain()

    def _advance(self, result: Any, error: Exception | None) -> None:
        """The next step of the running event: up to its next work, or to its end."""
        running = self._running
        if running is None or self._in_slices is None:
            return
        try:
            work = running.event.send(result) if error is None else running.event.throw(error)
        except StopIteration:
            self._running = None
        except Exception as failure:  # noqa: BLE001 - one event's failure ends that event, not the controller
            self._running = None
            running.on_error(failure)
        else:
            self._in_slices(work, self._on_done)

    def _on_done(self, result: Any, error: Exception | None) -> None:
        try:
            self._advance(result, error)
        finally:
            self._drain()


def _run_at_once(event: Event) -> None:
    result = None
    try:
        while True:
            result = event.send(result)()
    except StopIteration:
        return
