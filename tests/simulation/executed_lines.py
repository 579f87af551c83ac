"""Which lines of the product a few seeds execute: bugs are drawn among these lines only.

A function's lines are recorded in its first calls of each seed, so that hot functions do not slow the seeds down.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

CALLS_OF_A_FUNCTION = 150
"""In one seed; later calls are not looked at."""


class ExecutedLines:
    """Module -> its executed lines. A module is named by its path below `root`."""

    def __init__(self, root: Path, modules: Iterable[str]) -> None:
        self._names = {str(root / module): module for module in modules}
        self.lines: dict[str, set[int]] = {}
        self._calls: Counter[CodeType] = Counter()

    def record(self, run: Any, *arguments: Any) -> None:
        """Call `run` and record what it executes."""
        self._calls.clear()
        sys.settrace(self._on_call)
        try:
            run(*arguments)
        finally:
            sys.settrace(None)
        gc.collect()

    def _on_call(self, frame: FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        module = self._names.get(code.co_filename)
        if event != "call" or module is None or self._calls[code] >= CALLS_OF_A_FUNCTION:
            return None
        self._calls[code] += 1
        seen = self.lines.setdefault(module, set())

        def on_line(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                seen.add(frame.f_lineno)
            return on_line

        return on_line
