"""Consumer groups of a test: how far a group is behind, and waiting until the group has caught up.

Kafka's tools, and Ottla's, count a group's lag up to the end of the log. The test kit counts up to the last record that a
reader of committed records gets. The end markers of transactions, aborted records and open transactions behind that record
do not count: no group can read them, and not every client commits an offset behind them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla.client.cluster import Cluster
from ottla.client.group_lag import ReadLag, partition_lags
from ottla.client.groups import committed_offsets, describe_group
from ottla.client.offsets import FoundOffset, list_offsets
from ottla.client.topics import leaders_of
from ottla.frames.records import Decoding, RecordReader
from ottla.model.errors import KafkaError
from ottla.protocol.offset_timestamps import LATEST

_LOOK_S = 0.02
_PATIENCE_S = 5.0
"""How long a leader may take; without its answer the lag counts up to the end of the log."""
_SPAN = 500
"""Offsets before the end that are read first in the search of the last record."""
Partition = tuple[str, int]


class WaitError(AssertionError):
    """What the test waited for did not happen in time. The message has the last state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    group: str
    lags: Mapping[Partition, tuple[int, ReadLag]]
    """The offset behind the last record, and the lag, of each partition that the group has committed or owns."""
    members: int

    @property
    def records(self) -> int:
        return sum(lag.records for _, lag in self.lags.values())

    def __str__(self) -> str:
        if not self.lags:
            return f"group {self.group!r} has committed nothing and owns no partition ({self.members} members)"
        rows = []
        for (topic, index), (end, lag) in sorted(self.lags.items()):
            place = "no commit" if lag.uncommitted else f"committed {end - lag.records}"
            rows.append(f"{topic}-{index}: {place}, end {end}, lag {lag.records}")
        return f"group {self.group!r} has lag {self.records} ({self.members} members): " + "; ".join(rows)


class RecordEnds:
    """The offset behind the last record of a partition, for a reader of committed records."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends: dict[tuple[Partition, int, int], int] = {}
        """By partition, begin and last stable offset: a log is searched again only after it has changed."""

    def behind(self, begins: Mapping[Partition, int]) -> dict[Partition, int]:
        """For each partition the offset behind its last record, or `begin` if there is no record from `begin` on."""
        latest = dict.fromkeys(begins, LATEST)
        stable = list_offsets(self._cluster, latest, read_committed=True, patience_s=_PATIENCE_S, leaderless=True)
        ends: dict[tuple[Partition, int, int], int] = {}
        for where, begin in begins.items():
            answer = stable.get(where)
            if isinstance(answer, FoundOffset):
                place = where, begin, answer.offset
                ends[place] = self._ends[place] if place in self._ends else self._search(where, begin, answer.offset)
        self._ends = ends
        return {where: end for (where, _, _), end in ends.items()}

    def _search(self, where: Partition, begin: int, end: int) -> int:
        topic, index = where
        span = _SPAN
        with RecordReader(self._cluster.settings, topic, Decoding(None)) as reader:
            while end > begin:
                start = max(begin, end - span)
                last = max((record.offset for record in reader.between({index: start}, {index: end})), default=-1)
                if last >= 0:
                    return last + 1
                end, span = start, span * 4
        return begin


def group_lag(cluster: Cluster, group: str, topic: str | None, ends: RecordEnds) -> LagReport:
    """All partitions of the topics of the group, or of `topic`, also those without a commit."""
    try:
        members = describe_group(cluster, group).members
        committed = committed_offsets(cluster, group)
    except KafkaError:  # there is no group yet
        members, committed = (), {}
    owned = {partition for member in members for partition in member.assignment}
    if topic is not None:
        committed = {partition: offset for partition, offset in committed.items() if partition[0] == topic}
    topics = {name for name, _ in {*committed, *owned}} if topic is None else {topic}
    owned = set(leaders_of(cluster, topics)) if topics else set()
    lags = partition_lags(cluster, committed, owned)
    begins = {where: end - lag.records for where, (end, lag) in lags.items() if lag.records}
    for where, end in ends.behind(begins).items():
        lags[where] = end, replace(lags[where][1], records=max(0, end - begins[where]))
    return LagReport(group=group, lags=lags, members=len(members))


def wait_for_lag(cluster: Cluster, group: str, lag: int, topic: str | None, timeout_s: float) -> None:
    """Raises WaitError when the lag stays above `lag`, or when the group commits nothing."""
    deadline = time.monotonic() + timeout_s
    ends = RecordEnds(cluster)
    while True:
        state = group_lag(cluster, group, topic, ends)
        if state.lags and state.records <= lag:
            return
        if time.monotonic() > deadline:
            raise WaitError(f"waited {timeout_s:g} s for lag {lag}: {state}")
        time.sleep(_LOOK_S)
