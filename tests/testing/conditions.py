"""Waiting for a condition, with a bound for loaded machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

BOUND_S = 90.0


def until(condition: Callable[[], Any]) -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + BOUND_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
    return value
