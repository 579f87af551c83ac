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
Outcome = tuple[Any, Exception | None]
"""The result of the work, or the exception that the work raised."""
OnDone = Callable[[Any, Exception | None], None]
InSlices = Callable[[Work, OnDone], Outcome | None]
"""Run the work in slices. Returns the outcome of work that one slice has done, and None for work that pauses: `OnDone`
gets the outcome then.
"""
_START: Outcome = (None, None)


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
        if self._running is None:
            self._drain(_START)

    def _drain(self, outcome: Outcome) -> None:
        """Run the events, from `outcome` of the running event's work on, until a work pauses or no event waits."""
        if self._draining or self._in_slices is None:
            return
        self._draining = True
        try:
            while self._running is not None or self._urgent or self._waiting:
                if self._running is None:
                    self._running = (self._urgent or self._waiting).popleft()
                    outcome = _START
                event, on_error = self._running
                result, error = outcome
                try:
                    work = event.send(result) if error is None else event.throw(error)
                except StopIteration:
                    self._running = None
                except Exception as failure:  # noqa: BLE001 - one event's failure ends that event, not the controller
                    self._running = None
                    on_error(failure)
                else:
                    next_outcome = self._in_slices(work, self._on_done)
                    if next_outcome is None:
                        return
                    outcome = next_outcome
        finally:
            self._draining = False
            # Only a raised failure leaves events behind: the failure goes to the loop, and the other events run.
            if self._running is None and (self._urgent or self._waiting):
                self._drain(_START)

    def _on_done(self, result: Any, error: Exception | None) -> None:
        """The running event's work had paused and is done now."""
        self._drain((result, error))


def _run_at_once(event: Event) -> None:
    result = None
    try:
        while True:
            result = event.send(result)()
    except StopIteration:
        return
