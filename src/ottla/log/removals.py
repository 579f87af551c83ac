"""Files and folders whose time has come (`file.delete.delay.ms`): each is a blocking call that may run in a thread.

The removal of a gigabyte of cached pages takes a tenth of a second or more. An event loop that removed every segment of
a deleted topic would miss its heartbeats. The log decides what to remove; a `Removal` touches only names that the log
has given up.
"""

from __future__ import annotations

from collections.abc import Callable


class Removal:
    """Call the removal once, in any thread. Its creator reads `error` afterwards."""

    __slots__ = ("_path", "_remove", "error")

    def __init__(self, remove: Callable[[str], None], path: str) -> None:
        self._remove = remove
        self._path = path
        self.error: OSError | None = None

    def __call__(self) -> None:
        try:
            self._remove(self._path)
        except OSError as error:
            self.error = error
