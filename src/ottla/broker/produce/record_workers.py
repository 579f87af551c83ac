"""Where the records of large batches are walked: not on the loop. The real machine gives threads; None means at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

ResultT = TypeVar("ResultT")


class RecordWorkers(Protocol):
    def run(self, work: Callable[[], ResultT], done: Callable[[ResultT | BaseException], None]) -> None:
        """Call `work` elsewhere, then `done` on the loop with its result, or with the exception that it raised."""

    def close(self) -> None: ...
