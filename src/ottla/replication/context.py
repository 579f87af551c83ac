"""The shared context of all partitions of a node: the metadata image, the clock, and the sender of ISR proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.model.ids import NodeId

if TYPE_CHECKING:
    from ottla.env.seams import Clock
    from ottla.replication.partition import Partition


def _nobody_to_ask(_partition: Partition) -> None:
    """A node without a connection to a controller proposes nothing."""


class ReplicaContext:
    __slots__ = ("broker_epoch", "clock", "image", "lag_time_max_ms", "node_id", "propose")

    def __init__(self, node_id: NodeId, clock: Clock, lag_time_max_ms: float = 30_000) -> None:
        self.node_id = node_id
        self.clock = clock
        self.lag_time_max_ms = lag_time_max_ms
        """replica.lag.time.max.ms"""
        self.broker_epoch = -1
        self.image = MetadataImage()
        self.propose: Callable[[Partition], None] = _nobody_to_ask

    def broker(self, broker_id: NodeId) -> BrokerRegistration | None:
        return self.image.brokers.get(broker_id)

    def eligible(self, broker_id: NodeId, broker_epoch: int) -> bool:
        """Whether a follower may join an ISR: not fenced, not shutting down, and with the epoch that fetched (KIP-903)."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.epoch)
