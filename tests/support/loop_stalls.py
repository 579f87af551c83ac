"""Which tests hold the loop of a node in their process, and where: a plugin for a look at the whole suite.

    OTTLA_LOOP_STALLS=stalls.jsonl python -m pytest -p tests.support.loop_stalls ...

writes a line for each stall whose processor time is above the budget: test, times, stack. Waiting is not counted, so a
loaded machine gives the same list.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

from ottla.runtime.loop_watch import LoopWatch, Stall, log_stall
from ottla.testing import layout

BUDGET_S = 0.05
_PROBE_S = 0.02


def _write(stall: Stall) -> None:
    log_stall(stall)
    if stall.processor_s is None or stall.processor_s < BUDGET_S:
        return
    facts = {
        "test": os.environ.get("PYTEST_CURRENT_TEST", ""),
        "wall_ms": round(stall.wall_s * 1000),
        "cpu_ms": round(stall.processor_s * 1000),
        "stack": stall.stack,
    }
    with Path(os.environ["OTTLA_LOOP_STALLS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def pytest_configure() -> None:
    layout.NODE_PROPERTIES["ottla.loop.stall.ms"] = str(round(BUDGET_S * 1000))  # the test kit watches no loop
    original = LoopWatch.__init__

    @functools.wraps(original)
    def budgeted(self: LoopWatch, stall_s: float, *arguments: object, **options: object) -> None:
        if arguments or options:  # a test of the watch itself
            original(self, stall_s, *arguments, **options)  # type: ignore[arg-type]
        else:
            original(self, BUDGET_S, _write, probe_s=_PROBE_S)

    LoopWatch.__init__ = budgeted  # type: ignore[method-assign]
