"""How long the event loop takes to come round, and the stack of what held it.

A thread puts a probe into the loop every 100 ms. The delay of the probe is the time in which the loop handled no request.
If a probe is not answered within the limit, the thread takes the stack of the loop's thread and waits for the answer.
The report has the stall's wall time and processor time. A stall without processor time waited for the disk, or the
machine was busy. Nothing here runs on the way of a request; a probe costs 20 us of processor time (2026-11-19).
"""

from __future__ import annotations

import asyncio
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from traceback import walk_stack
from types import FrameType

from ottla.env.logging import get_logger
from ottla.system.threads import processor_clock

log = get_logger(__name__)

PROBE_S = 0.1
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram. The last bucket has everything above."""
MOST_FRAMES = 12
_JOIN_S = 5.0


class LoopDelays:
    """A histogram of the delays of all probes. Written by one thread, read by any."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, delay_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, delay_s)] += 1
        self.total_s += delay_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    wall_s: float
    processor_s: float | None
    """Of the loop's thread during the stall; None where the system does not count that."""
    stack: str
    """Innermost function first. Empty if the stall held the whole interpreter, so that nothing could be seen."""


def log_stall(stall: Stall) -> None:
    processor_ms = "unknown" if stall.processor_s is None else round(stall.processor_s * 1000)
    log.warning("loop.stalled", wall_ms=round(stall.wall_s * 1000), cpu_ms=processor_ms, stack=stall.stack or "unknown")


class LoopWatch:
    """Start and stop it in the thread of the loop."""

    def __init__(
        self, stall_s: float, on_stall: Callable[[Stall], None] = log_stall, *, probe_s: float = PROBE_S
    ) -> None:
        self.delays = LoopDelays()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._processor = processor_clock(self._loop_thread)
        self._stall_s = stall_s
        self._on_stall = on_stall
        self._probe_s = probe_s
        self._answered = threading.Event()
        self._answered_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ottla-loop-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The thread ends at once, because it never waits for anything but the two events."""
        self._stopping.set()
        self._answered.set()
        self._thread.join(_JOIN_S)

    def _watch(self) -> None:
        while not self._stopping.wait(self._probe_s):
            self._answered.clear()
            if self._stopping.is_set():  # `stop` may have set the event just before it was cleared
                return
            asked_at, used_s = monotonic(), self._used_s()
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed
                return
            stack = "" if self._answered.wait(self._stall_s) else self._stack()
            self._answered.wait()
            if self._stopping.is_set():
                return
            delay_s = self._answered_at - asked_at
            self.delays.add(delay_s)
            if delay_s >= self._stall_s:
                processor_s = None if used_s is None else (self._used_s() or 0.0) - used_s
                self._on_stall(Stall(wall_s=delay_s, processor_s=processor_s, stack=stack))

    def _answer(self) -> None:
        self._answered_at = monotonic()
        self._answered.set()

    def _used_s(self) -> float | None:
        return None if self._processor is None else self._processor()

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - documented, in spite of its name
        return "" if frame is None else shown_stack(frame)


def shown_stack(frame: FrameType) -> str:
    """`function (module:line)` of the innermost frames, without the frames of the loop itself."""
    shown: list[str] = []
    for inner, line in walk_stack(frame):
        module = inner.f_globals.get("__name__", "?")
        if str(module).startswith("asyncio.") or len(shown) == MOST_FRAMES:
            break
        shown.append(f"{inner.f_code.co_qualname} ({module}:{line})")
    return " < ".join(shown)
