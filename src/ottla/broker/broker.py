"""A broker's parts: one object per node, made by a composition root; it holds, it does not do.

Handlers see the parts through planes (`ottla.broker.planes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.channels import ControllerChannel, NoPeers, Peers, QuorumChannel
from ottla.broker.recently_fenced import RecentlyFenced
from ottla.broker.topics.auto_creation import AutoCreation

if TYPE_CHECKING:
    from ottla.broker.audit.events import AuditLog
    from ottla.broker.fetch.sessions import FetchSessions
    from ottla.broker.metrics import BrokerMetrics
    from ottla.broker.produce.record_workers import RecordWorkers
    from ottla.broker.quotas import Quotas
    from ottla.broker.schemas.schema_validation import SchemaValidation
    from ottla.broker.share.shares import Shares
    from ottla.broker.telemetry.subscriptions import ClientTelemetry
    from ottla.broker.topics.streams_topics import StreamsTopics
    from ottla.broker.transactions.producer_ids import ProducerIds
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock, Timers
    from ottla.log.log_store import LogStore
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.publisher import MetadataPublisher
    from ottla.model.ids import NodeId
    from ottla.replication.replicas import Replicas
    from ottla.replication.throttle import Throttle
    from ottla.security.acls import Authorizer
    from ottla.security.keystore import MasterKeys


@dataclass(slots=True, kw_only=True)
class Broker:
    node_id: NodeId
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    timers: Timers
    metadata: MetadataPublisher
    quorum: QuorumChannel
    logs: LogStore
    replicas: Replicas
    controller: ControllerChannel
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    make_groups: Callable[[], GroupCoordinator]
    make_transactions: Callable[[Broker], TransactionCoordinator]
    leader_throttle: Throttle | None = None
    """What `leader.replication.throttled.rate` leaves to followers that catch up."""
    authorizer: Authorizer | None = None
    quotas: Quotas | None = None
    """Only while there are any."""
    audit: AuditLog | None = None
    master_keys: MasterKeys | None = None
    """Of encryption at rest; for the metrics only."""
    schemas: SchemaValidation | None = None
    """Checks records of topics that ask for it; None without a registry."""
    record_workers: RecordWorkers | None = None
    """RecordWorkers the records of large batches; None: on the loop, as in a simulation."""
    telemetry: ClientTelemetry | None = None
    """The metrics that clients push (KIP-714); None: clients are not asked to push."""
    metrics: BrokerMetrics | None = None
    """None without ottla.http.listener: there is no place to read metrics, so nothing is counted."""
    recently_fenced: RecentlyFenced = field(default_factory=RecentlyFenced)
    """Brokers that Metadata still lists although they are fenced."""
    peers: Peers = field(default_factory=NoPeers)
    on_broker_disconnected: Callable[[NodeId, int], None] = lambda _broker, _epoch: None
    """Called when the connection breaks by which a broker of that epoch sent its heartbeats to this controller."""
    auto_creation: AutoCreation = field(default_factory=AutoCreation)
    """Topics that are being created because a client asked for their metadata."""
    _groups: GroupCoordinator | None = None
    _streams_topics: StreamsTopics | None = None
    _transactions: TransactionCoordinator | None = None
    _shares: Shares | None = None

    @property
    def groups(self) -> GroupCoordinator:
        """Made when the first group needs it: a node without groups does not load what they need."""
        if self._groups is None:
            self._groups = self.make_groups()
        return self._groups

    @property
    def has_groups(self) -> bool:
        return self._groups is not None

    @property
    def streams_topics(self) -> StreamsTopics:
        if self._streams_topics is None:
            from ottla.broker.topics.streams_topics import StreamsTopics

            self._streams_topics = StreamsTopics(self.clock)
        return self._streams_topics

    @property
    def transactions(self) -> TransactionCoordinator:
        """Made when the first transactional id needs it, as the groups are."""
        if self._transactions is None:
            self._transactions = self.make_transactions(self)
        return self._transactions

    @property
    def has_transactions(self) -> bool:
        return self._transactions is not None

    @property
    def shares(self) -> Shares:
        """Made when the first share group needs it, as the groups are."""
        if self._shares is None:
            from ottla.broker.share.shares import Shares

            self._shares = Shares(self)
        return self._shares

    @property
    def has_shares(self) -> bool:
        return self._shares is not None

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.metadata.image

    @property
    def metadata_offset(self) -> int:
        return self.metadata.offset
