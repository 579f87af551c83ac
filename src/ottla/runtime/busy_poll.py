"""Busy polling: the loop waits a moment for the next request before it sleeps.

A client that waits for each answer sends its next request within some 100 us. Waking a sleeping loop takes about as
long as the answer itself, on a virtual core longer. So while small requests follow closely, the loop polls instead of
sleeping, for at most `ottla.busy.poll.us` after each request. For slower traffic (heartbeats, long polls, large
batches) the loop does not poll.
"""

from __future__ import annotations

import asyncio
from time import monotonic

SMALL_BYTES = 4096
"""Only a read of at most this size starts polling: a client that has sent more needs longer for its next request."""
_REMEMBERED = 0xFF
_ENOUGH = 4


class BusyPoll:
    __slots__ = ("_close", "_last", "_looking", "_loop", "_window_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, window_us: int) -> None:
        self._loop = loop
        self._window_s = window_us / 1e6
        self._last = 0.0
        self._close = 0
        """A bit for each of the last eight small requests: set if it came within the window after the previous
        request.
        """
        self._looking = False

    def on_small_request(self) -> None:
        now = monotonic()
        close = self._close = (self._close << 1 | (now - self._last < self._window_s)) & _REMEMBERED
        self._last = now
        if not self._looking and close.bit_count() >= _ENOUGH:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """The loop does not sleep while something is to be called soon."""
        if monotonic() - self._last < self._window_s:
            self._loop.call_soon(self._look)
        else:
            self._looking = False
