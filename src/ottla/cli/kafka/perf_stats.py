"""What the perf tools count and print: latencies of records, and librdkafka's statistics in the shape of Kafka's metrics."""

from __future__ import annotations

import json
import time
from typing import Any


class Stats:
    """Latencies of all records and of those since the last report."""

    def __init__(self, interval_ms: int, *, quiet: bool = False) -> None:
        self._interval = interval_ms / 1000
        self._quiet = quiet
        self._latencies: list[float] = []
        self._bytes = 0
        self._window: list[float] = []
        self._window_bytes = 0
        self.begin()

    @property
    def count(self) -> int:
        return len(self._latencies)

    def begin(self) -> None:
        self._start = self._window_start = time.perf_counter()

    def record(self, latency_ms: float, size: int) -> None:
        self._latencies.append(latency_ms)
        self._bytes += size
        if self._quiet:
            return
        self._window.append(latency_ms)
        self._window_bytes += size
        if time.perf_counter() - self._window_start >= self._interval:
            self._report()

    def _report(self) -> None:
        elapsed = time.perf_counter() - self._window_start
        count, total = len(self._window), sum(self._window)
        print(
            f"{count} records sent, {count / elapsed:.1f} records/sec ({self._window_bytes / elapsed / 1048576:.2f} MB/sec), "
            f"{total / count:.1f} ms avg latency, {max(self._window):.1f} ms max latency.",
            flush=True,
        )
        self._window, self._window_bytes = [], 0
        self._window_start = time.perf_counter()

    def total(self, kind: str = "") -> None:
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        values = sorted(self._latencies) or [0.0]
        count = len(self._latencies)
        tiers = [values[min(int(share * len(values)), len(values) - 1)] for share in (0.5, 0.95, 0.99, 0.999)]
        words = ", ".join(
            f"{int(value)} ms {name}" for value, name in zip(tiers, ("50th", "95th", "99th", "99.9th"), strict=True)
        )
        print(
            f"{count} {kind}records sent, {count / elapsed:f} records/sec ({self._bytes / elapsed / 1048576:.2f} MB/sec), "
            f"{sum(values) / len(values):.2f} ms avg latency, {values[-1]:.2f} ms max latency, {words}."
        )


class ClientMetrics:
    """--print-metrics: a table like Kafka's, with librdkafka's own names in it."""

    def __init__(self, group: str, client_id: str) -> None:
        self._group, self._client_id = group, client_id
        self._last: dict[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        return {"stats_cb": self._keep, "statistics__interval__ms": 500}

    def _keep(self, text: str) -> None:
        self._last = json.loads(text)

    def show(self) -> None:
        rows = {
            f"{self._group}:{name}:{{client-id={self._client_id}}}": value
            for name, value in sorted(self._last.items())
            if isinstance(value, (int, float))
        }
        width = max(map(len, rows), default=11)
        print(f"\n{'Metric Name':<{width}}   Value")
        for name, value in rows.items():
            print(f"{name:<{width}} : {value:.3f}")
