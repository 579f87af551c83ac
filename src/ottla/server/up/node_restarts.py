"""`ottla up --nodes N` starts a node again that died, after a pause that grows, and gives up on a node that dies at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from ottla.env.restarts import MAX_RESTARTS, pause_s

_STEADY_S = 60.0
"""A node that ran for so long starts the count of its restarts again."""


class NodeRestarts:
    def __init__(self, node_id: int, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._node_id = node_id
        self._start = start
        self._failures = 0
        self._started_at: float | None = None
        self._due_at: float | None = None
        self.given_up = False

    def look(self, process: subprocess.Popen[bytes], now_s: float) -> subprocess.Popen[bytes]:
        """The process of the node: a new process if the old process ended and its pause is over."""
        if self._started_at is None:
            self._started_at = now_s
        if self.given_up or process.poll() is None:
            return process
        if self._due_at is None:
            self._on_end(process.returncode, now_s)
        if self._due_at is None or now_s < self._due_at:
            return process
        self._due_at, self._started_at = None, now_s
        return self._start()

    def _on_end(self, code: int, now_s: float) -> None:
        ran_s = now_s - (self._started_at or now_s)
        self._failures = 1 if ran_s >= _STEADY_S else self._failures + 1
        words = f"ottla: node {self._node_id} ended with code {code}"
        if self._failures > MAX_RESTARTS:
            self.given_up = True
            print(f"{words}, {self._failures} times in a row: it stays down. See its ottla.log", file=sys.stderr)
            return
        self._due_at = now_s + pause_s(self._failures)
        print(f"{words}: it starts again in {pause_s(self._failures):g} s", file=sys.stderr, flush=True)
