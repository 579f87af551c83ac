"""The records of an image, in the order of Kafka's snapshots; their replay gives the same image."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metadata.features import DIRECTORY_ASSIGNMENT_SINCE, ELR_SINCE, METADATA_VERSION
from ottla.metadata.image import MetadataImage, PartitionRegistration
from ottla.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from ottla.metadata.registrations import broker_record, controller_record
from ottla.model.ids import Uuid
from ottla.protocol.generated.client_quota_record import EntityData
from ottla.protocol.primitives import Message


def image_records(image: MetadataImage) -> Iterator[Message]:
    """Features first: the format of the other records may depend on metadata.version."""
    yield FeatureLevelRecord(METADATA_VERSION, image.metadata_version)
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name, level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for controller in image.controllers.values():
        yield controller_record(controller)
    yield from _topic_records(image)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type, resource_name, name, value)
    for entity in image.quota_entities():
        quotas = image.client_quotas[entity]
        parts = [EntityData(kind, name) for kind, name in entity]
        for key, quota in quotas.items():
            yield ClientQuotaRecord(parts, key, quota, remove=False)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.delegation_tokens.values()


def _topic_records(image: MetadataImage) -> Iterator[Message]:
    version = image.metadata_version
    for topic in image.topics_by_id.values():
        yield TopicRecord(topic.name, topic.id)
        for index, partition in topic.partitions.items():
            yield partition_record(topic.id, index, partition, version)


def partition_record(
    topic_id: Uuid, index: int, partition: PartitionRegistration, metadata_version: int
) -> PartitionRecord:
    """Fields that the metadata.version does not support stay empty."""
    elr_supported = metadata_version >= ELR_SINCE
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if metadata_version >= DIRECTORY_ASSIGNMENT_SINCE else [],
        eligible_leader_replicas=list(partition.elr) if elr_supported and partition.elr else None,
        last_known_elr=list(partition.last_known_elr) if elr_supported and partition.last_known_elr else None,
    )
