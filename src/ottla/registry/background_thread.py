"""A thread of the registry that runs until it is stopped."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

_STOP_S = 10.0


class BackgroundThread(ABC):
    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Run until `_stopping` is set."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait at most 10 s for the end of the thread."""
        self._stopping.set()
        self._thread.join(_STOP_S)
