"""The fetchers of a node, one for each source broker. The metadata decides which leader a partition follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.model.ids import NodeId
from ottla.replication.fetcher import FetcherSettings, ReplicaFetcher

if TYPE_CHECKING:
    from ottla.replication.context import ReplicaContext
    from ottla.replication.partition import Partition
    from ottla.replication.throttle import Throttle


class Fetchers:
    def __init__(self, context: ReplicaContext, settings: FetcherSettings, throttle: Throttle | None = None) -> None:
        self._context = context
        self.settings = settings
        self._throttle = throttle
        self.by_source: dict[NodeId, ReplicaFetcher] = {}
        self._source_of: dict[Partition, NodeId] = {}
        self.on_changed: Callable[[NodeId], None] = _nobody
        """Called with a source broker whose fetcher has a new partition."""

    def assign(self, partition: Partition) -> None:
        """Follow the partition's leader; without a leader, or as the leader, fetch nothing."""
        leader = partition.leader_id
        source = self._source_of.get(partition)
        if source is not None and source != leader:
            self.forget(partition)
        if leader < 0 or leader == self._context.node_id:
            return
        fetcher = self.by_source.get(leader)
        if fetcher is None:
            fetcher = self.by_source[leader] = ReplicaFetcher(self._context, leader, self.settings, self._throttle)
        fetcher.add(partition)
        self._source_of[partition] = leader
        self.on_changed(leader)

    def forget(self, partition: Partition) -> None:
        source = self._source_of.pop(partition, None)
        if source is not None:
            self.by_source[source].remove(partition)


def _nobody(_source: NodeId) -> None:
    """Without a driver nothing is fetched."""
