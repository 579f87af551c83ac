"""Timers on the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LoopTimers:
    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(delay_ms, 0) / 1000, callback)
