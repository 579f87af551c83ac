"""Real time and real randomness behind the seams."""

from __future__ import annotations

import os
import random
import time


class SystemClock:
    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0


class SystemRandom:
    __slots__ = ()

    def token_bytes(self, length: int) -> bytes:
        return os.urandom(length)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)  # noqa: S311 - jitter, not a secret
