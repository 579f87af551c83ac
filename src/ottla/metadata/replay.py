"""The only module that changes a metadata image, with a function for each record.

Replay is total and deterministic: the same records give the same image on every node and after every restart. A
record that contradicts the image raises MetadataError. Records between BeginTransaction and EndTransaction are stored
and applied together, or dropped by AbortTransaction (KIP-868).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ottla.metadata import quota_order
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from ottla.metadata.image import RESOURCE_TOPIC, MetadataError, MetadataImage, PartitionRegistration, TopicImage
from ottla.metadata.records import (
    NO_CHANGE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.registrations import broker_registration, changed_registration, controller_registration
from ottla.model.ids import Uuid, uuid_to_str
from ottla.model.java_order import strings_in_java_order
from ottla.protocol.primitives import Message

_NOBODY: tuple[int, ...] = ()


def replay(image: MetadataImage, delta: MetadataDelta, record: Message) -> None:
    """Apply a record, or store it until the end of the open transaction."""
    if image.transaction is None:
        _APPLY[type(record)](image, delta, record)
    elif type(record) in _TRANSACTION_ENDS:
        records, image.transaction = image.transaction, None
        if type(record) is EndTransactionRecord:
            replay_all(image, delta, records)
    elif type(record) is BeginTransactionRecord:
        raise MetadataError("a metadata transaction begins inside an open transaction")
    else:
        image.transaction.append(record)


def replay_all(image: MetadataImage, delta: MetadataDelta, records: Iterable[Message]) -> None:
    for record in records:
        replay(image, delta, record)


def _begin_transaction(image: MetadataImage, _delta: MetadataDelta, _record: BeginTransactionRecord) -> None:
    image.transaction = []


def _no_transaction(_image: MetadataImage, _delta: MetadataDelta, record: Message) -> None:
    raise MetadataError(f"{type(record).__name__} without a transaction")


def _nothing(_image: MetadataImage, _delta: MetadataDelta, _record: Message) -> None:
    """NoOp only moves the offset; a ZooKeeper migration state has no meaning since 4.0."""


def _feature_level(image: MetadataImage, delta: MetadataDelta, record: FeatureLevelRecord) -> None:
    supported = SUPPORTED_FEATURES.get(record.name)
    if supported is None or record.feature_level not in supported:
        raise MetadataError(f"{record.name} level {record.feature_level} is not supported here ({supported})")
    if record.feature_level == 0 and record.name != METADATA_VERSION:
        image.features.pop(record.name, None)
    else:
        image.features[record.name] = record.feature_level
    delta.features.add(record.name)


def _topic(image: MetadataImage, delta: MetadataDelta, record: TopicRecord) -> None:
    if record.name in image.topics_by_name:
        raise MetadataError(f"topic {record.name} is created twice")
    topic = TopicImage(record.name, record.topic_id)
    image.topics_by_id[record.topic_id] = topic
    image.topics_by_name[record.name] = topic
    delta.topics_created.add(record.topic_id)


def _remove_topic(image: MetadataImage, delta: MetadataDelta, record: RemoveTopicRecord) -> None:
    topic = _known_topic(image, record.topic_id)
    del image.topics_by_id[topic.id]
    del image.topics_by_name[topic.name]
    if image.configs.pop((RESOURCE_TOPIC, topic.name), None) is not None:
        delta.configs.add((RESOURCE_TOPIC, topic.name))
    delta.topic_deleted(topic)


def _partition(image: MetadataImage, delta: MetadataDelta, record: PartitionRecord) -> None:
    topic = _known_topic(image, record.topic_id)
    topic.partitions[record.partition_id] = PartitionRegistration(
        _interned(record.replicas),
        _interned(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        _interned(record.directories),
        record.leader_recovery_state,
        _interned(record.eligible_leader_replicas or _NOBODY),
        _interned(record.last_known_elr or _NOBODY),
        _interned(record.adding_replicas),
        _interned(record.removing_replicas),
    )
    delta.partition_changed(record.topic_id, record.partition_id)


def _partition_change(image: MetadataImage, delta: MetadataDelta, record: PartitionChangeRecord) -> None:
    topic = _known_topic(image, record.topic_id)
    partition = topic.partitions.get(record.partition_id)
    if partition is None:
        raise MetadataError(f"a change of partition {topic.name}-{record.partition_id}, which does not exist")
    topic.partitions[record.partition_id] = merge_partition(partition, record)
    delta.partition_changed(record.topic_id, record.partition_id)


def merge_partition(partition: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """The registration after `record`: the partition epoch rises always, the leader epoch when a leader is named."""
    names_leader = record.leader != NO_CHANGE
    return PartitionRegistration(
        partition.replicas if record.replicas is None else _interned(record.replicas),
        partition.isr if record.isr is None else _interned(record.isr),
        record.leader if names_leader else partition.leader,
        partition.leader_epoch + 1 if names_leader else partition.leader_epoch,
        partition.partition_epoch + 1,
        partition.directories if record.directories is None else _interned(record.directories),
        partition.leader_recovery_state if record.leader_recovery_state == -1 else record.leader_recovery_state,
        partition.elr if record.eligible_leader_replicas is None else _interned(record.eligible_leader_replicas),
        partition.last_known_elr if record.last_known_elr is None else _interned(record.last_known_elr),
        partition.adding if record.adding_replicas is None else _interned(record.adding_replicas),
        partition.removing if record.removing_replicas is None else _interned(record.removing_replicas),
    )


def _clear_elr(image: MetadataImage, delta: MetadataDelta, record: ClearElrRecord) -> None:
    """An empty name means every topic (the cluster-wide min.insync.replicas changed)."""
    if record.topic_name and record.topic_name not in image.topics_by_name:
        raise MetadataError(f"unable to clear the ELR of topic {record.topic_name}, which does not exist")
    names = [record.topic_name] if record.topic_name else list(image.topics_by_name)
    for name in names:
        topic = image.topics_by_name[name]
        for index, partition in topic.partitions.items():
            if partition.elr or partition.last_known_elr:
                topic.partitions[index] = replace(partition, elr=_NOBODY, last_known_elr=_NOBODY)
                delta.partition_changed(topic.id, index)


def _register_broker(image: MetadataImage, delta: MetadataDelta, record: RegisterBrokerRecord) -> None:
    image.brokers[record.broker_id] = broker_registration(record)
    delta.brokers.add(record.broker_id)


def _unregister_broker(image: MetadataImage, delta: MetadataDelta, record: UnregisterBrokerRecord) -> None:
    broker = image.brokers.get(record.broker_id)
    if broker is None or broker.epoch != record.broker_epoch:
        raise MetadataError(f"broker {record.broker_id} with epoch {record.broker_epoch} is not registered")
    del image.brokers[record.broker_id]
    delta.brokers.add(record.broker_id)


def _change_broker(image: MetadataImage, delta: MetadataDelta, record: BrokerRegistrationChangeRecord) -> None:
    broker = image.brokers.get(record.broker_id)
    if broker is None or broker.epoch != record.broker_epoch:
        raise MetadataError(f"broker {record.broker_id} with epoch {record.broker_epoch} is not registered")
    image.brokers[record.broker_id] = changed_registration(broker, record)
    delta.brokers.add(record.broker_id)


def _fence_broker(image: MetadataImage, delta: MetadataDelta, record: FenceBrokerRecord) -> None:
    _change_broker(image, delta, BrokerRegistrationChangeRecord(record.id, record.epoch, fenced=1))


def _unfence_broker(image: MetadataImage, delta: MetadataDelta, record: UnfenceBrokerRecord) -> None:
    _change_broker(image, delta, BrokerRegistrationChangeRecord(record.id, record.epoch, fenced=-1))


def _register_controller(image: MetadataImage, delta: MetadataDelta, record: RegisterControllerRecord) -> None:
    image.controllers[record.controller_id] = controller_registration(record)
    delta.controllers.add(record.controller_id)


def _config(image: MetadataImage, delta: MetadataDelta, record: ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    values = image.configs.setdefault(resource, {})
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value
    if not values:
        del image.configs[resource]
    delta.configs.add(resource)


def _producer_ids(image: MetadataImage, delta: MetadataDelta, record: ProducerIdsRecord) -> None:
    image.next_producer_id = record.next_producer_id
    delta.producer_ids = True


def _client_quota(image: MetadataImage, delta: MetadataDelta, record: ClientQuotaRecord) -> None:
    """The limits of an entity have the order of Kafka's map, as the entities have (`quota_order.py`)."""
    entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
    if not delta.client_quotas:
        quota_order.begin_delta(image)
    limits_before = delta.client_quotas.setdefault(entity, tuple(image.client_quotas.get(entity, ())))
    values = image.client_quotas.setdefault(entity, {})
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if not values:
        del image.client_quotas[entity]
        quota_order.on_entity_removed(image, delta.client_quotas)
        return
    if len(values) == 1:
        return
    former_keys = [key for key in limits_before if key in values]
    new_keys = strings_in_java_order(key for key in values if key not in limits_before)
    ordered = strings_in_java_order([*former_keys, *new_keys], initial_capacity=max(1, len(limits_before)))
    image.client_quotas[entity] = {key: values[key] for key in ordered}


def _acl(image: MetadataImage, delta: MetadataDelta, record: AccessControlEntryRecord) -> None:
    image.acls[record.id] = record
    delta.acls.add(record.id)


def _remove_acl(image: MetadataImage, delta: MetadataDelta, record: RemoveAccessControlEntryRecord) -> None:
    if image.acls.pop(record.id, None) is None:
        raise MetadataError(f"unable to remove ACL {uuid_to_str(record.id)}, which does not exist")
    delta.acls.add(record.id)


def _scram(image: MetadataImage, delta: MetadataDelta, record: UserScramCredentialRecord) -> None:
    image.scram[record.mechanism, record.name] = record
    delta.scram.add((record.mechanism, record.name))


def _remove_scram(image: MetadataImage, delta: MetadataDelta, record: RemoveUserScramCredentialRecord) -> None:
    image.scram.pop((record.mechanism, record.name), None)
    delta.scram.add((record.mechanism, record.name))


def _delegation_token(image: MetadataImage, delta: MetadataDelta, record: DelegationTokenRecord) -> None:
    image.delegation_tokens[record.token_id] = record
    delta.delegation_tokens.add(record.token_id)


def _remove_token(image: MetadataImage, delta: MetadataDelta, record: RemoveDelegationTokenRecord) -> None:
    image.delegation_tokens.pop(record.token_id, None)
    delta.delegation_tokens.add(record.token_id)


def _known_topic(image: MetadataImage, topic_id: Uuid) -> TopicImage:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise MetadataError(f"a record names topic id {uuid_to_str(topic_id)}, which does not exist")
    return topic


_SHARED: dict[Any, Any] = {}
_SHARED_LIMIT = 4096


def _interned(values: Iterable[Any]) -> Any:
    """A shared tuple for all equal replica lists: ten thousand partitions have few different lists."""
    values = tuple(values)
    shared = _SHARED.get(values)
    if shared is None:
        if len(_SHARED) >= _SHARED_LIMIT:
            _SHARED.clear()
        _SHARED[values] = shared = values
    return shared


_TRANSACTION_ENDS = (EndTransactionRecord, AbortTransactionRecord)

_APPLY: dict[type, Callable[[MetadataImage, MetadataDelta, Any], None]] = {
    RegisterBrokerRecord: _register_broker,
    UnregisterBrokerRecord: _unregister_broker,
    TopicRecord: _topic,
    PartitionRecord: _partition,
    ConfigRecord: _config,
    PartitionChangeRecord: _partition_change,
    FenceBrokerRecord: _fence_broker,
    UnfenceBrokerRecord: _unfence_broker,
    RemoveTopicRecord: _remove_topic,
    DelegationTokenRecord: _delegation_token,
    UserScramCredentialRecord: _scram,
    FeatureLevelRecord: _feature_level,
    ClientQuotaRecord: _client_quota,
    ProducerIdsRecord: _producer_ids,
    BrokerRegistrationChangeRecord: _change_broker,
    AccessControlEntryRecord: _acl,
    RemoveAccessControlEntryRecord: _remove_acl,
    NoOpRecord: _nothing,
    ZkMigrationStateRecord: _nothing,
    RemoveUserScramCredentialRecord: _remove_scram,
    BeginTransactionRecord: _begin_transaction,
    EndTransactionRecord: _no_transaction,
    AbortTransactionRecord: _no_transaction,
    RemoveDelegationTokenRecord: _remove_token,
    RegisterControllerRecord: _register_controller,
    ClearElrRecord: _clear_elr,
}
