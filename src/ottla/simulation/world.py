"""Virtual time: events in the order of their time, nothing in between; one seeded source of randomness."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

EPOCH_MS = 1_700_000_000_000
"""The wall-clock time at which a simulation begins."""


class Event:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action", "at_ms", "cancelled")

    def __init__(self, at_ms: float, action: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """The clock, the queue of events and the dice. Runs until its queue is empty or its time is up."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
        self.now_ms = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Event]] = []
        self._order = count()
        self.trace: list[str] = []
        self.tracing = False

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> Event:
        at_ms = self.now_ms + delay_ms if delay_ms > 0.0 else self.now_ms
        event = Event(at_ms, action)
        heapq.heappush(self._queue, (at_ms, next(self._order), event))
        return event

    def run_until(self, end_ms: float, after_each: Callable[[], None]) -> None:
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= end_ms:
            at_ms, _, event = pop(queue)
            if event.cancelled:
                continue
            self.now_ms = at_ms
            self.events += 1
            event.action()
            after_each()
        self.now_ms = max(self.now_ms, end_ms)

    def note(self, text: Callable[[], str]) -> None:
        """A line of the trace; the text is built only if tracing is on."""
        if self.tracing:
            self.trace.append(f"{self.now_ms:10.1f}  {text()}")


class SimulatedClock:
    """A node's view of time. Its wall clock may be off by `skew_ms`, which may jump."""

    __slots__ = ("_world", "skew_ms")

    def __init__(self, world: World, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def time_ms(self) -> int:
        return EPOCH_MS + int(self._world.now_ms) + self.skew_ms

    def jump(self, by_ms: int) -> None:
        """Move the wall clock; the monotonic clock goes on."""
        self.skew_ms += by_ms

    def monotonic_ms(self) -> float:
        return self._world.now_ms


class SimulatedRandom:
    __slots__ = ("_random",)

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def token_bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
