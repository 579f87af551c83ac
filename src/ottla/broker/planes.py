"""Planes: the parts of a node that a handler may touch.

A handler's signature names its plane, as in `handle(context: RequestContext[GroupPlane], request: JoinGroupRequest)`, and
the handler reaches the plane as `context.broker`. `Broker` implements all planes, `ControllerServer` the NodePlane and
the ControlPlane. Planes declare and do nothing. They exist for the type checker: nothing imports this module at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.audit.events import AuditLog
    from ottla.broker.broker import Broker
    from ottla.broker.channels import ControllerChannel, Peers, QuorumChannel
    from ottla.broker.controller_server import ControllerServer
    from ottla.broker.fetch.sessions import FetchSessions
    from ottla.broker.metrics import BrokerMetrics
    from ottla.broker.produce.record_workers import RecordWorkers
    from ottla.broker.quotas import Quotas
    from ottla.broker.recently_fenced import RecentlyFenced
    from ottla.broker.schemas.schema_validation import SchemaValidation
    from ottla.broker.share.shares import Shares
    from ottla.broker.telemetry.subscriptions import ClientTelemetry
    from ottla.broker.topics.auto_creation import AutoCreation
    from ottla.broker.topics.streams_topics import StreamsTopics
    from ottla.broker.transactions.producer_ids import ProducerIds
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock, Timers
    from ottla.log.log_store import LogStore
    from ottla.metadata.image import MetadataImage
    from ottla.model.ids import NodeId
    from ottla.replication.replicas import Replicas
    from ottla.replication.throttle import Throttle
    from ottla.security.acls import Authorizer


class NodePlane(Protocol):
    """What every listener has: settings, time, the committed metadata, and what limits and counts requests."""

    node_id: NodeId
    config: BrokerConfig
    clock: Clock
    timers: Timers
    authorizer: Authorizer | None
    quotas: Quotas | None
    audit: AuditLog | None
    metrics: BrokerMetrics | None

    @property
    def image(self) -> MetadataImage: ...


class ControlPlane(NodePlane, Protocol):
    """The active controller and the metadata quorum; both kinds of listener have them."""

    cluster_id: str
    quorum: QuorumChannel
    controller: ControllerChannel

    @property
    def on_broker_disconnected(self) -> Callable[[NodeId, int], None]: ...

    @property
    def metadata_offset(self) -> int: ...


class DataPlane(NodePlane, Protocol):
    """Partitions and their logs."""

    logs: LogStore
    replicas: Replicas
    fetch_sessions: FetchSessions
    leader_throttle: Throttle | None
    schemas: SchemaValidation | None
    record_workers: RecordWorkers | None


class GroupPlane(ControlPlane, Protocol):
    """Groups and their committed offsets; Kafka Streams' internal topics are created through the controller."""

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def streams_topics(self) -> StreamsTopics: ...


class VerificationPlane(NodePlane, Protocol):
    """The coordinators of transactions, here or on other brokers: verification before a transactional write."""

    peers: Peers

    @property
    def transactions(self) -> TransactionCoordinator: ...


class TransactionPlane(VerificationPlane, GroupPlane, DataPlane, Protocol):
    """Transactions: producer ids, the partitions that markers are written to, the groups whose offsets take part."""

    producer_ids: ProducerIds


class ProducePlane(DataPlane, VerificationPlane, Protocol):
    """Appends, and the verification of transactional ones."""


class SharePlane(GroupPlane, DataPlane, Protocol):
    """Share groups: their members, their share-partitions, and the records that they hand out."""

    peers: Peers

    @property
    def shares(self) -> Shares: ...


class CoordinatorPlane(TransactionPlane, SharePlane, Protocol):
    """All coordinators: FindCoordinator looks each of them up."""


class MetadataPlane(TransactionPlane, Protocol):
    """Metadata answers. Their requests create topics, with the settings of the coordinators for internal topics."""

    recently_fenced: RecentlyFenced
    auto_creation: AutoCreation


class TelemetryPlane(NodePlane, Protocol):
    """The metrics that clients push (KIP-714)."""

    telemetry: ClientTelemetry | None


if TYPE_CHECKING:
    # Every plane is one of these or a part of one, so that mypy refuses a node that lacks a member or has another type.

    def _planes_of_a_broker(
        broker: Broker,
    ) -> tuple[CoordinatorPlane, MetadataPlane, ProducePlane, TelemetryPlane]:
        return broker, broker, broker, broker

    def _plane_of_a_controller(server: ControllerServer) -> ControlPlane:
        return server
