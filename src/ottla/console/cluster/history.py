"""What was seen before, in bounded rings: rates, growth over time, and how many seconds a group is behind.

A group's lag in seconds is the age of the oldest record that it has not read: the time since the end of the partition
passed the committed offset. That is known without reading a record, for as long as this history goes back.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass

from ottla.console.cluster.snapshot import ClusterSnapshot, Partition

POINTS = 720
"""Of each ring: an hour at one look every five seconds."""
MAX_PARTITIONS = 20_000
"""Rings of end offsets; partitions that no group reads need none."""
MAX_TOPICS = 5_000


class Ring:
    """Times and values, oldest first. A full ring drops every second old point, so that it reaches far back."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")

    def add(self, time_s: float, value: float) -> None:
        self.times.append(time_s)
        self.values.append(value)
        if len(self.times) > POINTS:
            half = POINTS // 2
            self.times = self.times[:half:2] + self.times[half:]
            self.values = self.values[:half:2] + self.values[half:]

    def rates(self) -> tuple[list[float], list[float]]:
        """Growth per second between neighbouring points; 0 where the value falls, as when a topic is created again."""
        times, rates = [], []
        for i in range(1, len(self.times)):
            apart = self.times[i] - self.times[i - 1]
            if apart > 0:
                times.append(self.times[i])
                rates.append(max(0.0, self.values[i] - self.values[i - 1]) / apart)
        return times, rates

    def rate(self) -> float | None:
        """Over the last half minute or so."""
        if len(self.times) < 2:
            return None
        first = max(0, len(self.times) - 7)
        apart = self.times[-1] - self.times[first]
        return max(0.0, self.values[-1] - self.values[first]) / apart if apart > 0 else None


@dataclass(frozen=True, slots=True)
class ReadLag:
    records: int
    seconds: float | None
    """None when it goes back further than the history."""
    at_least: bool = False


class History:
    def __init__(self) -> None:
        self.written = Ring()
        self.written_by_topic: dict[str, Ring] = {}
        self.size_by_topic: dict[str, Ring] = {}
        self.lag_by_group: dict[str, Ring] = {}
        self._ends: dict[Partition, Ring] = {}

    def add(self, snapshot: ClusterSnapshot) -> None:
        now = snapshot.taken_ms / 1000
        own = [topic for topic in snapshot.topics.values() if not topic.internal]
        self.written.add(now, sum(topic.written for topic in own))
        for rings in (self.written_by_topic, self.size_by_topic):
            for name in rings.keys() - snapshot.topics.keys():
                del rings[name]
        for topic in list(snapshot.topics.values())[:MAX_TOPICS]:
            self.written_by_topic.setdefault(topic.name, Ring()).add(now, topic.written)
            if topic.size is not None:
                self.size_by_topic.setdefault(topic.name, Ring()).add(now, topic.size)
        self._add_groups(snapshot, now)

    def _add_groups(self, snapshot: ClusterSnapshot, now: float) -> None:
        ends = snapshot.ends()
        read = {where for group in snapshot.groups.values() for where in group.committed}
        for where in self._ends.keys() - read:
            del self._ends[where]
        for where in sorted(read & ends.keys())[:MAX_PARTITIONS]:
            self._ends.setdefault(where, Ring()).add(now, ends[where])
        for name in self.lag_by_group.keys() - snapshot.groups.keys():
            del self.lag_by_group[name]
        for group in snapshot.groups.values():
            lag = sum(max(0, ends[where] - offset) for where, offset in group.committed.items() if where in ends)
            self.lag_by_group.setdefault(group.id, Ring()).add(now, lag)

    def lag(self, where: Partition, committed: int, end: int, now_s: float) -> ReadLag:
        if committed >= end:
            return ReadLag(0, 0.0)
        ring = self._ends.get(where)
        if ring is None or not ring.times:
            return ReadLag(end - committed, None)
        passed = bisect_right(ring.values, committed)
        if passed >= len(ring.times):
            return ReadLag(end - committed, 0.0)
        if passed == 0:
            # The first look already found it behind: at least as old as that.
            return ReadLag(end - committed, max(0.0, now_s - ring.times[0]), at_least=True)
        before, after = passed - 1, passed
        grown = ring.values[after] - ring.values[before]
        part = (committed - ring.values[before]) / grown if grown > 0 else 0.0
        moment = ring.times[before] + part * (ring.times[after] - ring.times[before])
        return ReadLag(end - committed, max(0.0, now_s - moment))

    def lags(self, snapshot: ClusterSnapshot) -> dict[str, ReadLag]:
        """Of every group: the sum of the records, the longest of the times."""
        ends, now_s = snapshot.ends(), snapshot.taken_ms / 1000
        return {
            group.id: total_lag(
                [
                    self.lag(where, offset, ends[where], now_s)
                    for where, offset in group.committed.items()
                    if where in ends
                ]
            )
            for group in snapshot.groups.values()
        }


def total_lag(lags: list[ReadLag]) -> ReadLag:
    behind = [lag for lag in lags if lag.records]
    lag_seconds = [lag.seconds for lag in behind if lag.seconds is not None]
    seconds = max(lag_seconds) if lag_seconds else (None if behind else 0.0)
    return ReadLag(sum(lag.records for lag in lags), seconds, any(lag.at_least for lag in behind))
