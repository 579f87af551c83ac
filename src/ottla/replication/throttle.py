"""Replication throttles: bytes per second for the replicas that a topic names, measured over a few whole seconds.

`leader.replication.throttled.replicas` and its follower twin list `partition:broker` pairs, or `*` for all; the rates
are dynamic broker settings. Only replicas that catch up are throttled, never replicas in sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.env.config.topic import TopicConfig
    from ottla.env.seams import Clock
    from ottla.model.ids import NodeId
    from ottla.replication.partition import Partition

WINDOW_MS = 11_000
"""Kafka's default: 11 samples of a second each (replication.quota.window.num)."""
_UNLIMITED = (1 << 63) - 1


class Throttle:
    __slots__ = ("_bytes", "_clock", "_node_id", "_rate", "_samples", "_throttled_replicas")

    def __init__(
        self,
        clock: Clock,
        node_id: NodeId,
        rate: Callable[[], int],
        throttled_replicas: Callable[[TopicConfig], tuple[str, ...]],
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self._rate = rate
        self._throttled_replicas = throttled_replicas
        self._samples: deque[tuple[float, int]] = deque()
        self._bytes = 0

    def applies(self, partition: Partition) -> bool:
        replicas = self._throttled_replicas(partition.log.config)
        if not replicas:
            return False
        return "*" in replicas or f"{partition.topic_partition.partition}:{self._node_id}" in replicas

    def record(self, size: int) -> None:
        if self._rate() < _UNLIMITED:
            self._samples.append((self._clock.monotonic_ms(), size))
            self._bytes += size

    def exceeded(self) -> bool:
        rate = self._rate()
        if rate >= _UNLIMITED:
            return False
        now_ms = self._clock.monotonic_ms()
        while self._samples and self._samples[0][0] < now_ms - WINDOW_MS:
            self._bytes -= self._samples.popleft()[1]
        if not self._samples:
            return False
        window_ms = max(now_ms - self._samples[0][0], 1_000.0)
        return self._bytes * 1000 / window_ms > rate
