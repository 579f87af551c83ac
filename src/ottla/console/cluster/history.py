"""What was seen before, in bounded rings: rates, growth over time, and how many seconds a group is behind.

A group's lag in seconds is the age of the oldest record that the group has not read (`ottla.client.group_lag`). Where
that record cannot be read, the history has an estimate: the time since the end of the partition passed the position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import replace

from ottla.client.group_lag import Partition, ReadLag
from ottla.console.cluster.snapshot import ClusterSnapshot, GroupRow

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
        ends = snapshot.ends
        read = {where for group in snapshot.groups.values() for where in snapshot.positions(group)}
        for where in self._ends.keys() - read:
            del self._ends[where]
        for where in sorted(read & ends.keys())[:MAX_PARTITIONS]:
            self._ends.setdefault(where, Ring()).add(now, ends[where])
        for name in self.lag_by_group.keys() - snapshot.groups.keys():
            del self.lag_by_group[name]
        for group in snapshot.groups.values():
            lag = sum(max(0, ends[where] - position) for where, position in snapshot.positions(group).items())
            self.lag_by_group.setdefault(group.id, Ring()).add(now, lag)

    def lag(self, snapshot: ClusterSnapshot, where: Partition, position: int) -> ReadLag:
        """How far a group is behind that continues at `position`. The end of the partition is in the snapshot."""
        end, now_s = snapshot.ends[where], snapshot.taken_ms / 1000
        if position >= end:
            return ReadLag(0, 0.0)
        since_ms = snapshot.unread_since.get((where, snapshot.first_unread(where, position)))
        if since_ms is not None:
            return ReadLag(end - position, max(0.0, now_s - since_ms / 1000))
        return self._seen_lag(where, position, end, now_s)

    def _seen_lag(self, where: Partition, position: int, end: int, now_s: float) -> ReadLag:
        """Without the record's time: the time since the end of the partition passed the position, as far as seen."""
        ring = self._ends.get(where)
        if ring is None or not ring.times:
            return ReadLag(end - position, None)
        passed = bisect_right(ring.values, position)
        if passed >= len(ring.times):
            return ReadLag(end - position, 0.0)
        if passed == 0:
            # The first look already found it behind: at least as old as that.
            return ReadLag(end - position, max(0.0, now_s - ring.times[0]), at_least=True)
        before, after = passed - 1, passed
        grown = ring.values[after] - ring.values[before]
        part = (position - ring.values[before]) / grown if grown > 0 else 0.0
        moment = ring.times[before] + part * (ring.times[after] - ring.times[before])
        return ReadLag(end - position, max(0.0, now_s - moment))

    def lags_by_partition(self, snapshot: ClusterSnapshot, group: GroupRow) -> dict[Partition, ReadLag]:
        """Of one group; a partition that is counted from its start is marked."""
        return {
            where: replace(self.lag(snapshot, where, position), uncommitted=where not in group.committed)
            for where, position in snapshot.positions(group).items()
        }

    def lags(self, snapshot: ClusterSnapshot) -> dict[str, ReadLag]:
        """Of every group: the sum of the records, the longest of the times."""
        return {
            group.id: total_lag(list(self.lags_by_partition(snapshot, group).values()))
            for group in snapshot.groups.values()
        }


def total_lag(lags: list[ReadLag]) -> ReadLag:
    behind = [lag for lag in lags if lag.records]
    # A member may start at the end of a partition: the age of its first record counts only with a commit.
    lag_seconds = [lag.seconds for lag in behind if lag.seconds is not None and not lag.uncommitted]
    seconds = max(lag_seconds) if lag_seconds else (None if behind else 0.0)
    at_least, uncommitted = any(lag.at_least for lag in behind), any(lag.uncommitted for lag in behind)
    return ReadLag(sum(lag.records for lag in lags), seconds, at_least, uncommitted)
