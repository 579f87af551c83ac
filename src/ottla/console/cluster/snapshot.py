"""The cluster at one moment, as pages show it. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ottla.client.group_lag import Partition, Place, positions


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    id: int
    host: str
    port: int
    rack: str
    leaders: int = 0
    replicas: int = 0
    size: int | None = None
    disk_total: int | None = None
    disk_free: int | None = None
    offline_dirs: tuple[str, ...] = ()
    answers: bool = True
    """A broker that has died is listed for some seconds more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    start: int | None = None
    end: int | None = None
    size: int | None = None

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def records(self) -> int | None:
        return None if self.start is None or self.end is None else max(0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    name: str
    id: str
    internal: bool
    partitions: tuple[PartitionRow, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(row.replicas) for row in self.partitions), default=0)

    @property
    def records(self) -> int | None:
        record_counts = [row.records for row in self.partitions if row.records is not None]
        return sum(record_counts) if record_counts or not self.partitions else None

    @property
    def written(self) -> int:
        """The sum of the end offsets: what was ever written, as far as it is known."""
        return sum(row.end or 0 for row in self.partitions)

    @property
    def size(self) -> int | None:
        """Of one copy, as the leaders have it."""
        sizes = [row.size for row in self.partitions if row.size is not None]
        return sum(sizes) if sizes else None

    @property
    def answering(self) -> bool:
        """Whether all leaders answer: those of a topic that was just made do so a moment after it is listed."""
        return all(row.end is not None for row in self.partitions if row.leader >= 0)

    @property
    def leaderless(self) -> int:
        return sum(row.leader < 0 for row in self.partitions)

    @property
    def under_replicated(self) -> int:
        return sum(row.under_replicated for row in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    id: str
    kind: str
    state: str
    protocol: str
    committed: dict[Partition, int] = field(default_factory=dict)
    owned: frozenset[Partition] = frozenset()
    """The partitions of the members, in classic and consumer groups."""
    coordinator: int = -1


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    taken_ms: int
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerRow, ...]
    topics: dict[str, TopicRow]
    groups: dict[str, GroupRow]
    took_s: float
    problems: tuple[str, ...] = ()
    """What could not be asked, in words."""
    unread_since: dict[Place, int] = field(default_factory=dict)
    """The time of the first record that a group has not read, in milliseconds, where the time is known."""

    @property
    def answering(self) -> list[int]:
        """The brokers to ask, by id."""
        return [row.id for row in self.brokers if row.answers]

    @cached_property
    def ends(self) -> dict[Partition, int]:
        return {
            (topic.name, row.index): row.end
            for topic in self.topics.values()
            for row in topic.partitions
            if row.end is not None
        }

    @cached_property
    def starts(self) -> dict[Partition, int]:
        return {
            (topic.name, row.index): row.start
            for topic in self.topics.values()
            for row in topic.partitions
            if row.start is not None
        }

    def first_unread(self, where: Partition, position: int) -> int:
        """The position, or where the partition starts now: retention may have passed the position."""
        return max(position, self.starts.get(where, 0))

    def positions(self, group: GroupRow) -> dict[Partition, int]:
        """Where the group continues, in partitions whose end is known."""
        places = positions(group.committed, group.owned, self.starts)
        return {where: offset for where, offset in places.items() if where in self.ends}
