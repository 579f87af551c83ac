"""Processes that `ottla up` starts beside the node: the registry, and other commands that only use the wire protocol.

Companions start after the node, and each prints its own line. A companion that cannot start reports the reason, and the
node continues. A companion reads its standard input and ends when it closes, so none outlives a node that was killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from ottla.system.processes import own_command

STOP_TIMEOUT_S = 15


class Companions:
    def __init__(self, *, quiet: bool = False) -> None:
        """`quiet`: what the companions print goes to the standard error."""
        self._output = sys.stderr if quiet else None
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def all_run(self) -> bool:
        """Whether no companion has ended."""
        return all(process.poll() is None for process in self._processes)

    def start(self, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """`arguments` are those of an `ottla` command that ends with its standard input; `variables` its environment's."""
        # The command is Python's own path with our arguments. In its own session a companion does not get Ctrl-C: the
        # node gets it, and stops its companions in order.
        self._processes.append(
            subprocess.Popen(  # noqa: S603 - see above
                own_command(*arguments),
                stdin=subprocess.PIPE,
                stdout=self._output,
                start_new_session=True,
                env={**os.environ, **(variables or {})},
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
