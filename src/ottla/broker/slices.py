"""Large requests are handled in slices: between two slices the loop serves other requests.

A request with many elements, or an API whose answer may have many, is decoded, handled and encoded in a greenlet. Its
loops go through `ottla.model.pace.paced`, which counts the work and switches back to the loop after a slice. One slice is
done in a turn of the loop, whatever the number of such requests; they take turns. Requests with few elements so far have
every other turn. While the requests under way have built many elements, the large ones are finished one after the other:
what waits holds little memory. Decisions and replays of the controller run in greenlets too (`ottla.controller.events`).
Nothing else does. A loop without `paced` in it is never interrupted: a decision and its change stay together.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

from ottla.model.pace import TooMuchWorkError, at_pace

ResultT = TypeVar("ResultT")

SLICE_UNITS = 500
"""A unit is about a microsecond of counted work; short arrays inside of the counted ones come on top."""
FEW_ELEMENTS = 600
"""A request that has built no more elements does not wait for all large requests."""
MAX_HELD_ELEMENTS = 200_000
"""Of all requests under way, some 500 bytes each. Above it only one large request goes on."""
_NEVER = 1_000_000_000
_COLLECT_TURNS = 50_000
"""After so many turns without a pause a full collection may happen all the same."""


class CancelledWork(BaseException):
    """The peer is gone. Not an Exception: no handler takes it for its own failure."""


class Job(Generic[ResultT]):
    """One request's work. It is also the Pace of that work."""

    __slots__ = (
        "_cancelled",
        "_error",
        "_greenlet",
        "_left",
        "_main",
        "_on_done",
        "_result",
        "_slices",
        "_units",
        "done",
        "elements",
        "interruptible",
    )

    def __init__(self, slices: Slices, work: Callable[[Job[ResultT]], ResultT], max_elements: int) -> None:
        self._slices = slices
        self._main: greenlet | None = None
        self._greenlet: greenlet | None = greenlet(lambda: self._run(work))
        self._left = max_elements
        self._units = 0
        self._cancelled = False
        self._result: ResultT | None = None
        self._error: Exception | None = None
        self._on_done: Callable[[], None] | None = None
        self.done = False
        self.elements = 0
        self.interruptible = True
        """Whether the work may be dropped between two elements when the peer is gone."""

    def allow(self, max_elements: int) -> None:
        """From here on so many elements."""
        self._left = max_elements

    def spend(self, elements: int, units: int) -> None:
        self.elements += elements
        self._left -= elements
        if self._left < 0:
            raise TooMuchWorkError(
                "too many elements in a request (ottla.request.max.elements, ottla.request.max.changes) or in the answer to it "
                "(ottla.response.max.elements)"
            )
        self._units += units
        if self._units >= SLICE_UNITS and self._main is not None and getcurrent() is self._greenlet:
            self._units = 0
            with at_pace(None):
                self._main.switch()
            if self._cancelled and self.interruptible:
                raise CancelledWork

    def cancel(self) -> None:
        """The peer is gone: decoding and encoding end here, what a handler has begun is finished."""
        self._cancelled = True

    def result(self) -> ResultT:
        """Of the work that is done: its value, or its exception."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # done and without an error

    def then(self, on_done: Callable[[], None]) -> None:
        self._on_done = on_done

    def step(self) -> None:
        """One slice. A job that is done refers to nothing that refers to it: no collector has to find its objects."""
        if self._greenlet is None:
            return
        before = self.elements
        self._main = self._greenlet.parent = getcurrent()  # a job may be started inside of another one
        with at_pace(None):
            self._greenlet.switch()
        self._slices.held += self.elements - before
        if self.done:
            self._slices.held -= self.elements
            self._greenlet = self._main = None
            on_done, self._on_done = self._on_done, None
            if on_done is not None:
                on_done()

    def _run(self, work: Callable[[Job[ResultT]], ResultT]) -> None:
        try:
            with at_pace(self):
                self._result = work(self)
        except CancelledWork:
            self._on_done = None
        except Exception as error:  # noqa: BLE001 - the error is raised by `result`
            self._error = error
        self.done = True


class Slices:
    """The jobs of one loop, in turn. While there are any, the collector leaves old objects alone: a full collection walks
    everything that the jobs have built, in one go.
    """

    def __init__(self) -> None:
        self._fresh: deque[Job[Any]] = deque()
        self._large: deque[Job[Any]] = deque()
        self._thresholds: tuple[int, int, int] | None = None
        self._scheduled = False
        self.turns = 0
        self.held = 0
        """Elements that the jobs under way have built."""

    def start(self, work: Callable[[Job[ResultT]], ResultT], max_elements: int = sys.maxsize) -> Job[ResultT]:
        """Do the first slice now, unless others wait for their turn. The job may be done then. Work of the node itself,
        whose size was checked before, has no limit.
        """
        job = Job(self, work, max_elements)
        if not self._scheduled:
            job.step()
            if job.done:
                return job
        if job.elements > FEW_ELEMENTS:
            self._large.append(job)
        else:
            self._fresh.append(job)
        self._schedule()
        return job

    def _schedule(self) -> None:
        """One turn to come, whatever the number of jobs: a job that ends may start the next one of its connection."""
        if not self._scheduled:
            self._scheduled = True
            if (self.turns + 1) % _COLLECT_TURNS:
                self._postpone_collections()
            else:
                self._allow_collections()
            asyncio.get_running_loop().call_soon(self._turn)

    def _postpone_collections(self) -> None:
        if self._thresholds is None:
            self._thresholds = gc.get_threshold()
            gc.set_threshold(*self._thresholds[:2], _NEVER)

    def _allow_collections(self) -> None:
        if self._thresholds is not None:
            gc.set_threshold(*self._thresholds)
            self._thresholds = None

    def _turn(self) -> None:
        self.turns += 1
        queue = self._fresh if self._fresh and (self.turns & 1 or not self._large) else self._large
        job = queue.popleft()
        try:
            job.step()
        finally:
            if not job.done:
                if job.elements <= FEW_ELEMENTS:
                    self._fresh.append(job)
                elif queue is self._large and self.held > MAX_HELD_ELEMENTS:
                    queue.appendleft(job)
                else:
                    self._large.append(job)
            self._scheduled = False
            if len(self):
                self._schedule()
            else:
                self._allow_collections()

    def __len__(self) -> int:
        return len(self._fresh) + len(self._large)
