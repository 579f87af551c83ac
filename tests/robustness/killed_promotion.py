"""`ottla` whose process kills itself before the n-th change that a promotion makes on disk: run as a module, with n, the
end of the paths that count, and the command line of `ottla`. A real node with real files and a real SIGKILL; only the
moment is chosen."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from ottla.log.moves import LogMoves
from ottla.runtime.disk import DiskFile, DiskStorage


class Countdown:
    def __init__(self, left: int, paths: str) -> None:
        self.left = left
        self.paths = re.compile(paths)
        self.counting = False

    def before(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(owner: Any, *arguments: Any, **named: Any) -> Any:
            path = str(getattr(owner, "path", arguments and arguments[0]))
            main = threading.current_thread() is threading.main_thread()
            if self.counting and main and self.paths.search(path):
                self.left -= 1
                if self.left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return change(owner, *arguments, **named)

        return changed

    def during(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.counting = True
            try:
                return work(*arguments, **named)
            finally:
                self.counting = False
                print(f"promotion.survived left={self.left}", flush=True)

        return counted


def main() -> None:
    countdown = Countdown(int(sys.argv.pop(1)), sys.argv.pop(1))
    for owner, names in (
        (DiskFile, ("pwrite", "truncate", "sync")),
        (DiskStorage, ("write_atomic", "rename", "sync_dir", "remove")),
    ):
        for name in names:
            setattr(owner, name, countdown.before(getattr(owner, name)))
    LogMoves.promote = countdown.during(LogMoves.promote)  # type: ignore[method-assign]
    from ottla.cli.main import main as ottla

    ottla()


if __name__ == "__main__":
    main()
