"""The processor time of a single thread, where the system counts that."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial


def processor_clock(thread_id: int) -> Callable[[], float] | None:
    """Seconds of processor time of a thread that runs; None on macOS, which has no such clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    return partial(time.clock_gettime, time.pthread_getcpuclockid(thread_id))
