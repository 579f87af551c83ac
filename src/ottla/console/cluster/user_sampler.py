"""What one person sees of the cluster: the same calls as `Sampler`, with only the topics and groups of that person.

Two filters can apply at once. The first is a sample made as that person, where the cluster's ACLs decide. The second is
the grants of the access rules, where prefixes of names decide. Rates and lags over time come from the shared sampler,
for the visible topics and groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.client.group_lag import Partition, ReadLag
from ottla.console.cluster.acting import Acting
from ottla.console.cluster.gateway import until_it_shows
from ottla.console.cluster.history import History, Ring
from ottla.console.cluster.sampler import Sampler
from ottla.console.cluster.snapshot import ClusterSnapshot, GroupRow
from ottla.security.grants import CONSUMER_GROUP, TOPIC, Rights

_FRESH_S = 5.0


def narrowed(snapshot: ClusterSnapshot, rights: Rights) -> ClusterSnapshot:
    """Only what the grants name; of brokers only what everybody who connects learns."""
    if not rights.limited:
        return snapshot
    topics = {name: row for name, row in snapshot.topics.items() if rights.sees(TOPIC, name)}
    groups = {
        name: replace(
            row,
            committed={where: offset for where, offset in row.committed.items() if where[0] in topics},
            owned=frozenset(where for where in row.owned if where[0] in topics),
        )
        for name, row in snapshot.groups.items()
        if rights.sees(CONSUMER_GROUP, name)
    }
    brokers = tuple(
        replace(row, leaders=0, replicas=0, size=None, disk_total=None, disk_free=None, offline_dirs=())
        for row in snapshot.brokers
    )
    return replace(snapshot, topics=topics, groups=groups, brokers=brokers, problems=())


class UserSampler:
    def __init__(self, shared: Sampler, rights: Rights, acting: Acting | None) -> None:
        self._shared = shared
        self._rights = rights
        self._acting = acting
        self.snapshot: ClusterSnapshot | None = None

    @property
    def error(self) -> str:
        return self._shared.error if self._acting is None else ""

    async def current(self, *, max_age_s: float | None = None) -> ClusterSnapshot:
        if self._acting is not None:
            snapshot = await self._acting.look(_FRESH_S if max_age_s is None else max_age_s)
        else:
            snapshot = await self._shared.current(max_age_s=max_age_s)
        return self._keep(snapshot)

    async def look(self) -> ClusterSnapshot:
        if self._acting is not None:
            return self._keep(await self._acting.look(0))
        return self._keep(await self._shared.look())

    async def look_until(self, seen: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        return await until_it_shows(self.look, seen)

    def _keep(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        self.snapshot = narrowed(snapshot, self._rights)
        return self.snapshot

    @property
    def history(self) -> UserHistory:
        return UserHistory(self._shared.history, self.snapshot)

    @property
    def lags(self) -> dict[str, ReadLag]:
        return {} if self.snapshot is None else self._shared.history.lags(self.snapshot)


class UserHistory:
    """The shared history of what is in a person's snapshot."""

    def __init__(self, shared: History, snapshot: ClusterSnapshot | None) -> None:
        self._shared = shared
        self._topics = snapshot.topics if snapshot is not None else {}
        self._groups = snapshot.groups if snapshot is not None else {}

    @property
    def written(self) -> VisibleRate:
        return VisibleRate([ring for name, ring in self.written_by_topic.items() if not self._topics[name].internal])

    @property
    def written_by_topic(self) -> dict[str, Ring]:
        return _only(self._shared.written_by_topic, self._topics)

    @property
    def size_by_topic(self) -> dict[str, Ring]:
        return _only(self._shared.size_by_topic, self._topics)

    @property
    def lag_by_group(self) -> dict[str, Ring]:
        """Always empty: a group may also read topics that this person does not see, and the sum would reveal them."""
        return {}

    def lag(self, snapshot: ClusterSnapshot, where: Partition, position: int) -> ReadLag:
        return self._shared.lag(snapshot, where, position)

    def lags_by_partition(self, snapshot: ClusterSnapshot, group: GroupRow) -> dict[Partition, ReadLag]:
        return self._shared.lags_by_partition(snapshot, group)


class VisibleRate:
    """The sum over topics that a person sees; how it was before is kept for the whole cluster only."""

    def __init__(self, rings: list[Ring]) -> None:
        self._rings = rings

    def rates(self) -> tuple[list[float], list[float]]:
        return [], []

    def rate(self) -> float | None:
        rates = [rate for ring in self._rings if (rate := ring.rate()) is not None]
        return sum(rates) if rates else None


def _only(rings: dict[str, Ring], names: dict[str, Any]) -> dict[str, Ring]:
    return {name: rings[name] for name in names if name in rings}
