"""The events of the active controller, one after the other, each in as many slices as its size needs.

No other event runs before an event has ended, so a decision, its records and their replay belong together although the
loop serves other requests meanwhile. An event pauses only in its loops over `paced` (`ottla.model.pace`); code without
such a loop, and code below `at_pace(None)`, is one step. Without `InSlices` an event runs to its end at once: at start
and in tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

Event = Callable[[], None]
OnError = Callable[[Exception], None]


class EventJob(Protocol):
    """An event under way: `ottla.broker.slices.Job`."""

    done: bool

    def result(self) -> Any:
        """Raises the exception that ended the event."""

    def then(self, on_done: Callable[[], None]) -> None: ...


InSlices = Callable[[Callable[[Any], None]], EventJob]
"""Run the work in slices. The job is done on return if one slice was enough; otherwise the job calls `then`'s function."""


class _Waiting(NamedTuple):
    event: Event
    on_error: OnError


class ControllerEvents:
    def __init__(self, in_slices: InSlices | None = None) -> None:
        self._in_slices = in_slices
        self._urgent: deque[_Waiting] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._running = False

    def run(self, event: Event, on_error: OnError, *, urgent: bool = False) -> None:
        """Run the event now, or after the events that wait. Heartbeats and the controller's own duties are urgent: a
        broker's session must not end because clients' large requests wait.
        """
        if self._in_slices is None:
            event()
            return
        if self._running:
            (self._urgent if urgent else self._waiting).append(_Waiting(event, on_error))
            return
        self._running = True
        job = self._in_slices(lambda _pace: event())
        if job.done:
            self._end(job, on_error)
        else:
            job.then(partial(self._end, job, on_error))

    def _end(self, job: EventJob, on_error: OnError) -> None:
        try:
            job.result()
        except Exception as error:  # noqa: BLE001 - one event's failure ends that event, not the controller
            on_error(error)
        finally:  # `on_error` may raise to the loop: the other events run all the same
            self._running = False
            if self._urgent or self._waiting:
                self.run(*(self._urgent or self._waiting).popleft())
