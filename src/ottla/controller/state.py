"""The inputs of a decision: the controller's image, the settings, the rules for configs, the quorum, randomness.

Nothing here is durable. The image is the controller's own: it holds everything appended, committed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ottla.controller.config_rules import ConfigRules
from ottla.env.config.topic import TopicConfig
from ottla.env.seams import Clock, RandomSource
from ottla.metadata.image import RESOURCE_BROKER, BrokerRegistration, MetadataImage
from ottla.model.ids import (
    LOST_DIRECTORY_ID,
    MIGRATING_DIRECTORY_ID,
    UNASSIGNED_DIRECTORY_ID,
    NodeId,
    Uuid,
    new_uuid,
)
from ottla.raft.views import QuorumView
from ottla.raft.voters import VoterSet


def _everything(_name: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequestContext:
    """The client of a request: the request's version, which configs its principal may see, where it may write."""

    version: int
    principal: str = "User:ANONYMOUS"
    may_describe_configs: Callable[[str], bool] = _everything
    may_write: Callable[[str], bool] = _everything
    """Whether the principal has WRITE on the topic of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    cluster_id: str
    node_id: NodeId
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    broker_session_timeout_ms: int = 9_000
    leader_balance_interval_ms: int = 300_000
    """leader.imbalance.check.interval.seconds; 0 when auto.leader.rebalance.enable is off"""
    unclean_election_interval_ms: int = 300_000
    """unclean.leader.election.interval.ms"""
    token_expiry_interval_ms: int = 3_600_000
    """delegation.token.expiry.check.interval.ms"""
    names_ignore_case: bool = False
    """A file system of this node ignores case (macOS): two topics whose names differ only in case are refused."""


@dataclass(slots=True)
class BrokerSession:
    """Soft state of one broker: rebuilt from heartbeats after a restart."""

    last_contact_ms: float
    metadata_offset: int = -1
    registration_offset: int = -1
    controlled_shutdown_offset: int = -1


class Quorum(Protocol):
    """The raft node as the controller uses it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def kraft_version(self) -> int: ...

    @property
    def voters(self) -> VoterSet: ...

    def describe(self) -> QuorumView: ...

    def upgrade_kraft_version(self, *, validate_only: bool) -> str | None:
        """To 1; why not, when it cannot be."""
        ...


@dataclass(slots=True, kw_only=True)
class ControllerState:
    settings: ControllerSettings
    rules: ConfigRules
    quorum: Quorum
    clock: Clock
    random: RandomSource
    image: MetadataImage = field(default_factory=MetadataImage)
    sessions: dict[NodeId, BrokerSession] = field(default_factory=dict)
    balance_wanted_ms: float | None = None
    """Since when a preferred replica could lead again and does not."""

    def want_balance(self) -> None:
        if self.balance_wanted_ms is None:
            self.balance_wanted_ms = self.clock.monotonic_ms()

    def heard_within(self, broker_id: NodeId, duration_ms: float) -> bool:
        """Whether a broker has sent a heartbeat to this controller within the time."""
        session = self.sessions.get(broker_id)
        if session is None or session.metadata_offset < 0:
            return False
        return self.clock.monotonic_ms() - session.last_contact_ms <= duration_ms

    def new_uuid(self) -> Uuid:
        return new_uuid(self.random.token_bytes)

    def active(self, broker_id: NodeId) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def default_directory(self, broker_id: NodeId) -> Uuid:
        """The directory of a new replica: known if the broker has only one directory, else the broker chooses."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or not broker.directories:
            return MIGRATING_DIRECTORY_ID
        return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY_ID

    def topic_config(self, topic: str) -> TopicConfig:
        """The effective settings of a topic."""
        return self.rules.topic_config(
            self.image.topic_config(topic), cluster=self.cluster_config(), node=self.node_config()
        )

    def cluster_config(self) -> Mapping[str, str]:
        return self.image.configs.get((RESOURCE_BROKER, ""), {})

    def node_config(self) -> Mapping[str, str]:
        return self.image.configs.get((RESOURCE_BROKER, str(self.settings.node_id)), {})

    def unclean_election_enabled(self, topic: str) -> bool:
        return self.topic_config(topic).unclean_leader_election_enable

    def min_isr(self, topic: str) -> int:
        """min.insync.replicas, but never more than there are replicas."""
        configured = self.topic_config(topic).min_insync_replicas
        topic_image = self.image.topics_by_name.get(topic)
        if topic_image is None or not topic_image.partitions:
            return configured
        return min(configured, len(next(iter(topic_image.partitions.values())).replicas))


def has_online_directory(broker: BrokerRegistration, directory: Uuid) -> bool:
    if directory in (UNASSIGNED_DIRECTORY_ID, MIGRATING_DIRECTORY_ID):
        return True
    if directory == LOST_DIRECTORY_ID:
        return False
    return not broker.directories or directory in broker.directories
