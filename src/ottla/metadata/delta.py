"""The names of all objects that a range of records changed: a subscriber reads the delta, then the image."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.metadata.image import ConfigResource, QuotaEntity, TopicImage
from ottla.model.ids import NodeId, Uuid


@dataclass(slots=True)
class MetadataDelta:
    """Accumulates during replay. A topic that the same delta creates and deletes is in neither set."""

    topics_created: set[Uuid] = field(default_factory=set)
    topics_deleted: dict[Uuid, TopicImage] = field(default_factory=dict)
    partitions: dict[Uuid, set[int]] = field(default_factory=dict)
    """topic id -> partitions that are new or changed, without deleted topics."""
    brokers: set[NodeId] = field(default_factory=set)
    controllers: set[NodeId] = field(default_factory=set)
    configs: set[ConfigResource] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    client_quotas: dict[QuotaEntity, tuple[str, ...]] = field(default_factory=dict)
    """entity -> its limits before the delta."""
    acls: set[Uuid] = field(default_factory=set)
    scram: set[tuple[int, str]] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)
    producer_ids: bool = False
    reloaded: bool = False
    """The image was loaded again from a snapshot: every object may have changed."""

    @property
    def empty(self) -> bool:
        return self == MetadataDelta()

    def partition_changed(self, topic_id: Uuid, partition: int) -> None:
        self.partitions.setdefault(topic_id, set()).add(partition)

    def topic_deleted(self, topic: TopicImage) -> None:
        self.partitions.pop(topic.id, None)
        if topic.id in self.topics_created:
            self.topics_created.discard(topic.id)
        else:
            self.topics_deleted[topic.id] = topic
