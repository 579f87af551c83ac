"""What the tests leave in the home. A person's own programs may write there meanwhile, and they are not the tests' fault.

An entry is the tests' if this process made it, which an audit hook sees, or if its name is that of a program that tests start.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

CACHES = {
    ".cache", ".m2", ".npm", ".ivy2", ".cargo", ".rustup", "go", "snap", ".local/share/pki", ".pki", ".config/go",
    ".bash_history", ".python_history", ".lesshst", ".wget-hsts", ".claude", ".claude.json",
}  # fmt: skip
"""What may appear in the home during a run: caches of tools that tests download, and files of the person's own programs."""
FOLDERS = (".", ".config", ".local", ".local/share", ".local/state")
"""Where programs keep settings and state."""
PROGRAMS = (
    "ottla", "kafka", "kcat", "spark", "hadoop", "derby", "hive", "metastore", "delta", "iceberg", "duckdb", "matplotlib",
    "ipython", "jupyter", "chromium", "playwright", "postgres", "maria", "redis",
)  # fmt: skip


class HomeWatch:
    """From its making on. An audit hook cannot be taken away: make one for a process."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._prefix = f"{home}{os.sep}"
        self._before = self._entries()
        self._made: set[str] = set()
        sys.addaudithook(self._on_event)

    def left(self) -> set[str]:
        """The entries that the tests have made, as paths in the home."""
        new = self._entries() - self._before
        return {entry for entry in new if self._is_of_the_tests(entry)}

    def _is_of_the_tests(self, entry: str) -> bool:
        path = f"{self._prefix}{entry}"
        return any(program in entry.lower() for program in PROGRAMS) or any(
            made == path or made.startswith(path + os.sep) for made in self._made
        )

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if type(path) is str and isinstance(flags, int) and flags & os.O_CREAT and path.startswith(self._prefix):
                self._made.add(path)
        elif event == "os.mkdir":
            path = os.fspath(arguments[0])
            if isinstance(path, str) and path.startswith(self._prefix):
                self._made.add(path)

    def _entries(self) -> set[str]:
        return {
            str(entry.relative_to(self._home))
            for folder in FOLDERS
            if (self._home / folder).is_dir()
            for entry in (self._home / folder).iterdir()
        } - {*CACHES, *FOLDERS}
