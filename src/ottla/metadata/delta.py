"""What a stretch of records changed, by name: subscribers look here first and then into the image."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.metadata.image import ConfigResource, QuotaEntity, TopicImage
from ottla.model.ids import NodeId, Uuid


@dataclass(slots=True)
class MetadataDelta:
    """Accumulates while records are replayed. A topic made and removed within one delta appears in neither set."""

    topics_created: set[Uuid] = field(default_factory=set)
    topics_deleted: dict[Uuid, TopicImage] = field(default_factory=dict)
    partitions: dict[Uuid, set[int]] = field(default_factory=dict)
    """topic id -> partitions that are new or changed; deleted topics are not in it."""
    brokers: set[NodeId] = field(default_factory=set)
    controllers: set[NodeId] = field(default_factory=set)
    configs: set[ConfigResource] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    client_quotas: dict[QuotaEntity, tuple[str, ...]] = field(default_factory=dict)
    """entity -> the limits that it had before."""
    acls: set[Uuid] = field(default_factory=set)
    scram: set[tuple[int, str]] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)
    producer_ids: bool = False
    reloaded: bool = False
    """The image was loaded anew (from a snapshot): take everything as changed."""

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
