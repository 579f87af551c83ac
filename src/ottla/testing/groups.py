"""Consumer groups of a test: how far a group is behind, and waiting until the group has caught up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.cluster import Cluster
from ottla.client.group_lag import ReadLag, partition_lags
from ottla.client.groups import committed_offsets, describe_group
from ottla.client.topics import leaders_of
from ottla.model.errors import KafkaError

_LOOK_S = 0.02
Partition = tuple[str, int]


class WaitError(AssertionError):
    """What the test waited for did not happen in time. The message has the last state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    group: str
    lags: Mapping[Partition, tuple[int, ReadLag]]
    """The end offset and the lag of each partition that the group has committed or owns."""
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


def group_lag(cluster: Cluster, group: str, topic: str | None = None) -> LagReport:
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
    return LagReport(group=group, lags=partition_lags(cluster, committed, owned), members=len(members))


def wait_for_lag(cluster: Cluster, group: str, lag: int, topic: str | None, timeout_s: float) -> None:
    """Raises WaitError when the lag stays above `lag`, or when the group commits nothing."""
    deadline = time.monotonic() + timeout_s
    while True:
        state = group_lag(cluster, group, topic)
        if state.lags and state.records <= lag:
            return
        if time.monotonic() > deadline:
            raise WaitError(f"waited {timeout_s:g} s for lag {lag}: {state}")
        time.sleep(_LOOK_S)
