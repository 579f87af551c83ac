"""The metadata image: the state of the cluster after all records of `__cluster_metadata`.

Only `ottla.metadata.replay` changes an image (for the order of quotas with `quota_order`). Registrations are values: a
change creates a new registration, so a holder of the former registration can compare. A node keeps two images: the
controller's image with all appended records, and the published image with all committed records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.metadata.features import ELR_VERSION, METADATA_VERSION, MINIMUM_METADATA_VERSION, Range
from ottla.model.ids import NO_NODE, UNASSIGNED_DIRECTORY_ID, NodeId, TopicPartition, Uuid
from ottla.model.java_order import map_capacity, maps_by_bucket

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32

RECOVERED = 0
RECOVERING = 1

ConfigResource = tuple[int, str]
"""(resource type, name); the cluster-wide broker default has the name ""."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, entity name or None for the default), sorted by type."""


class MetadataError(Exception):
    """A record cannot be applied: the log and the image contradict each other. The node must not continue."""


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_NODE

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.replicas[0]

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def directory(self, broker_id: NodeId) -> Uuid:
        """The directory of the replica on `broker_id`; UNASSIGNED before metadata.version 17 or without a replica."""
        if broker_id in self.replicas and self.directories:
            return self.directories[self.replicas.index(broker_id)]
        return UNASSIGNED_DIRECTORY_ID


@dataclass(slots=True)
class TopicImage:
    name: str
    id: Uuid
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisteredEndpoint:
    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    id: NodeId
    epoch: int
    incarnation_id: Uuid
    listeners: dict[str, RegisteredEndpoint]
    features: dict[str, Range]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[Uuid, ...] = ()
    cordoned_directories: tuple[Uuid, ...] | None = None

    @property
    def active(self) -> bool:
        """Whether the broker may lead and join an ISR."""
        return not (self.fenced or self.in_controlled_shutdown)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    id: NodeId
    incarnation_id: Uuid
    listeners: dict[str, RegisteredEndpoint]
    features: dict[str, Range]


@dataclass(slots=True)
class MetadataImage:
    """Any code may read the image; only `replay` changes it."""

    features: dict[str, int] = field(default_factory=dict)
    """Finalized levels above 0, metadata.version included (kraft.version lives in the raft log's control records)."""
    brokers: dict[NodeId, BrokerRegistration] = field(default_factory=dict)
    controllers: dict[NodeId, ControllerRegistration] = field(default_factory=dict)
    topics_by_id: dict[Uuid, TopicImage] = field(default_factory=dict)
    topics_by_name: dict[str, TopicImage] = field(default_factory=dict)
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    client_quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    client_quotas_before: int = field(default=0, compare=False)
    """The number of entities before the last change: it is the capacity of Kafka's quota map and decides on its order."""
    client_quotas_former_capacity: int = field(default=0, compare=False)
    """The capacity of Kafka's map before the last change; 0: `client_quotas` has that order (`quota_order.py`)."""
    acls: dict[Uuid, Any] = field(default_factory=dict)
    """id -> AccessControlEntryRecord"""
    scram: dict[tuple[int, str], Any] = field(default_factory=dict)
    """(mechanism, user) -> UserScramCredentialRecord"""
    delegation_tokens: dict[str, Any] = field(default_factory=dict)
    """token id -> DelegationTokenRecord"""
    transaction: list[Any] | None = None
    """The records of an open metadata transaction (KIP-868), which are not applied."""

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELR_VERSION, 0) >= 1

    @property
    def empty(self) -> bool:
        """Whether no record was ever committed: the first controller then writes the bootstrap records."""
        return not self.features and not self.brokers and not self.topics_by_id and not self.configs

    def copy(self) -> MetadataImage:
        """A copy that replay can change without a change of this image; both share the registrations."""
        topics = {
            topic.id: TopicImage(topic.name, topic.id, dict(topic.partitions)) for topic in self.topics_by_id.values()
        }
        return MetadataImage(
            features=dict(self.features),
            brokers=dict(self.brokers),
            controllers=dict(self.controllers),
            topics_by_id=topics,
            topics_by_name={topic.name: topic for topic in topics.values()},
            configs={resource: dict(values) for resource, values in self.configs.items()},
            next_producer_id=self.next_producer_id,
            client_quotas={entity: dict(values) for entity, values in self.client_quotas.items()},
            client_quotas_before=self.client_quotas_before,
            client_quotas_former_capacity=self.client_quotas_former_capacity,
            acls=dict(self.acls),
            scram=dict(self.scram),
            delegation_tokens=dict(self.delegation_tokens),
            transaction=None if self.transaction is None else list(self.transaction),
        )

    def quota_entities(self) -> list[QuotaEntity]:
        """The entities in the order of Kafka's map."""
        return maps_by_bucket(self.client_quotas, self.quota_capacity)

    @property
    def quota_capacity(self) -> int:
        """The capacity of Kafka's map of quotas."""
        return map_capacity(len(self.client_quotas), max(1, self.client_quotas_before))

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        topic_image = self.topics_by_name.get(topic)
        return None if topic_image is None else topic_image.partitions.get(partition)

    def topic_config(self, topic: str) -> dict[str, str]:
        return self.configs.get((RESOURCE_TOPIC, topic), {})

    def partitions(self) -> Iterator[tuple[TopicPartition, Uuid, PartitionRegistration]]:
        for topic in self.topics_by_name.values():
            for index, registration in topic.partitions.items():
                yield TopicPartition(topic.name, index), topic.id, registration
