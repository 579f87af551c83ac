"""Processes that `ottla up` starts beside the node: the registry, and whatever else speaks the wire only.

They start after the node and cost it nothing; each prints its own line. A companion that cannot start says so and the
node goes on. It reads its standard input and ends when that closes, so that none outlives a node that was killed.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence

from ottla.system.processes import own_command

STOP_TIMEOUT_S = 15


class Companions:
    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: Sequence[str]) -> None:
        """`arguments` are those of an `ottla` command that ends with its standard input."""
        # Python is asked for by its own path, and the arguments are ours; a session of its own keeps Ctrl-C for the
        # node, which stops its companions in order.
        self._processes.append(
            subprocess.Popen(  # noqa: S603 - as said
                own_command(*arguments), stdin=subprocess.PIPE, start_new_session=True
            )
        )

    def stop(self) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
