"""The parts of a controller's listener: no partitions, no coordinators, only the quorum's metadata.

Handlers see the parts as a `ControlPlane` (`ottla.broker.planes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.audit.events import AuditLog
    from ottla.broker.channels import ControllerChannel, QuorumChannel
    from ottla.broker.metrics import BrokerMetrics
    from ottla.broker.quotas import Quotas
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock, Timers
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.publisher import MetadataPublisher
    from ottla.model.ids import NodeId
    from ottla.security.acls import Authorizer
    from ottla.security.keystore import MasterKeys


@dataclass(slots=True, kw_only=True)
class ControllerServer:
    node_id: NodeId
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    timers: Timers
    metadata: MetadataPublisher
    quorum: QuorumChannel
    controller: ControllerChannel
    authorizer: Authorizer | None = None
    quotas: Quotas | None = None
    """Only while there are any."""
    audit: AuditLog | None = None
    master_keys: MasterKeys | None = None
    """Of encryption at rest; for the metrics only."""
    metrics: BrokerMetrics | None = None
    on_broker_disconnected: Callable[[NodeId, int], None] = lambda _broker, _epoch: None

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.metadata.image

    @property
    def metadata_offset(self) -> int:
        return self.metadata.offset
