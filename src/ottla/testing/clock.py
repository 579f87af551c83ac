"""Time that a test moves: the clock of all nodes of a test broker, and the timers that follow the clock.

What moves: retention, sessions of groups and shares, transaction timeouts, expiry of offsets and of producer ids, and the
waits of requests at the broker. What does not move: clients, the timestamps that clients write, the registry, and the
watch of nodes over each other (quorum, broker sessions, replicas in sync).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from ottla.runtime.clock import SystemClock

_SETTLE_S = 30.0


class BrokerClock:
    """The real time plus what `advance` has added. The methods of `ottla.env.seams.Clock`, for every node."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._ahead_ms = 0.0
        self._lock = threading.Lock()
        self._timers: list[MovedTimers] = []
        self._paused: set[asyncio.AbstractEventLoop] = set()

    def time_ms(self) -> int:
        return self._real.time_ms() + int(self._ahead_ms)

    def monotonic_ms(self) -> float:
        return self._real.monotonic_ms() + self._ahead_ms

    def time(self) -> float:
        """Seconds since 1970, as `time.time()`."""
        return self.time_ms() / 1000

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the time of all nodes forward. Returns when every timer that is now due has run once, in its order. The
        timers of a paused node run when the node continues.
        """
        ahead_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
        if ahead_ms < 0:
            raise ValueError("time moves forward only: give advance a positive duration")
        with self._lock:
            self._ahead_ms += ahead_ms
            timers = list(self._timers)
            paused = set(self._paused)
        following = [(timer, timer.follow()) for timer in timers]
        for timer, moved in following:
            if timer.loop not in paused:
                moved.result(_SETTLE_S)

    def stand_still(self, loop: asyncio.AbstractEventLoop) -> None:
        """The node of the loop is paused: `advance` does not wait for its timers."""
        with self._lock:
            self._paused.add(loop)

    def go_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        with self._lock:
            self._paused = {paused for paused in self._paused if paused is not loop}

    def timers(self, loop: asyncio.AbstractEventLoop) -> MovedTimers:
        """The timers of a node, on its loop."""
        timers = MovedTimers(loop, self)
        with self._lock:
            self._timers = [timer for timer in self._timers if not timer.is_over]
            self._timers.append(timers)
        return timers


class _Pending:
    __slots__ = ("callback", "due_ms", "handle", "owner")

    def __init__(self, owner: MovedTimers, due_ms: float, callback: Callable[[], None]) -> None:
        self.owner = owner
        self.due_ms = due_ms
        self.callback = callback
        self.handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        self.owner.forget(self)


class MovedTimers:
    """`ottla.env.seams.Timers` on a loop: a timer fires early when its clock is moved."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: BrokerClock) -> None:
        self.loop = loop
        self._clock = clock
        self._pending: set[_Pending] = set()

    @property
    def is_over(self) -> bool:
        return self.loop.is_closed()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _Pending:
        timer = _Pending(self, self._clock.monotonic_ms() + max(delay_ms, 0), callback)
        self._pending.add(timer)
        self._arm(timer)
        return timer

    def forget(self, timer: _Pending) -> None:
        self._pending.discard(timer)
        if timer.handle is not None:
            timer.handle.cancel()

    def _arm(self, timer: _Pending) -> None:
        if timer.handle is not None:
            timer.handle.cancel()
        delay_ms = max(timer.due_ms - self._clock.monotonic_ms(), 0)
        timer.handle = self.loop.call_later(delay_ms / 1000, self._ring, timer)

    def _ring(self, timer: _Pending) -> None:
        self._pending.discard(timer)
        timer.callback()

    def follow(self) -> Future[None]:
        """From any thread: the clock was moved. The future is done when the timers that are due have run."""
        done: Future[None] = Future()
        try:
            self.loop.call_soon_threadsafe(self._follow, done)
        except RuntimeError:  # the node has stopped
            done.set_result(None)
        return done

    def _follow(self, done: Future[None]) -> None:
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._pending, key=lambda timer: timer.due_ms):
            if timer.due_ms > now_ms:
                self._arm(timer)
            elif timer.handle is not None:
                timer.handle.cancel()
                self.loop.call_soon(self._ring_if_pending, timer)
        # Tasks that a timer wakes run in the next turns of the loop.
        self.loop.call_soon(self.loop.call_soon, self.loop.call_soon, done.set_result, None)

    def _ring_if_pending(self, timer: _Pending) -> None:
        """An earlier timer may have cancelled this timer."""
        if timer in self._pending:
            self._ring(timer)
