"""Shards load one after the other, some records a turn of the loop: the node answers other requests in between.

A small log is replayed at once, while the turn has room. A shard that a client asks for comes first.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from ottla.coordinator.loader import RECORDS_OF_A_STEP
from ottla.coordinator.runtime import LoadStep, Shard
from ottla.env.seams import Timers

LOAD_RETRY_MS = 1_000
_RECORDS_OF_A_TURN = 2 * RECORDS_OF_A_STEP


class LoadingShards:
    """The shards that still replay their logs, in the order in which they will be ready."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Shard[Any]] = deque()
        self._records_left = _RECORDS_OF_A_TURN
        self._scheduled = False

    def add(self, shard: Shard[Any]) -> None:
        self._waiting.append(shard)
        self._load_first()

    def prefer(self, shard: Shard[Any]) -> None:
        """A client waits for the shard."""
        if shard in self._waiting:
            self._waiting.remove(shard)
            self._waiting.appendleft(shard)

    def _turn(self) -> None:
        self._scheduled = False
        self._records_left = _RECORDS_OF_A_TURN
        self._load_first()

    def _load_first(self) -> None:
        """As many steps as the turn has room for; the rest waits for the next turn."""
        try:
            while self._waiting and self._records_left > 0:
                self._load_some(self._waiting.popleft())
        finally:
            if self._records_left < _RECORDS_OF_A_TURN and not self._scheduled:
                self._scheduled = True
                self._timers.call_soon(self._turn)

    def _load_some(self, shard: Shard[Any]) -> None:
        replayed = shard.replayed
        step = shard.load_some()
        if step is LoadStep.MORE:
            self._waiting.appendleft(shard)
            self._records_left -= RECORDS_OF_A_STEP
            return
        self._records_left -= shard.replayed - replayed
        if step is LoadStep.LATER:
            self._timers.call_later(LOAD_RETRY_MS, partial(self.add, shard))
