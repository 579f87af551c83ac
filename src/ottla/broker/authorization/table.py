"""Every API and who may call it, as Kafka's KafkaApis and ControllerApis have it. A test holds it against the APIs that
are served: one without a rule would be closed to everyone.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization import data, groups, shares, topics
from ottla.broker.authorization.refusals import offset_commit_topic, txn_offset_commit_topic
from ottla.broker.authorization.rules import (
    Rule,
    all_of,
    by_name,
    by_topic,
    for_cluster,
    for_each,
    for_everyone,
    for_one,
    itself,
)
from ottla.broker.authorization.topics import topic_name
from ottla.model.acls import Operation as Op
from ottla.model.acls import ResourceType as Resource
from ottla.protocol.api_keys import ApiKey


def _list_offsets(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse

    partitions = [ListOffsetsPartitionResponse(item.partition_index, code) for item in topic.partitions]
    return ListOffsetsTopicResponse(topic.name, partitions)


def _delete_records(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.delete_records_response import DeleteRecordsPartitionResult, DeleteRecordsTopicResult

    partitions = [DeleteRecordsPartitionResult(item.partition_index, -1, code) for item in topic.partitions]
    return DeleteRecordsTopicResult(topic.name, partitions)


def _epoch_end(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.offset_for_leader_epoch_response import EpochEndOffset, OffsetForLeaderTopicResult

    return OffsetForLeaderTopicResult(topic.topic, [EpochEndOffset(code, item.partition) for item in topic.partitions])


def _create_partitions(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.create_partitions_response import CreatePartitionsTopicResult

    return CreatePartitionsTopicResult(topic.name, code)


def _delete_group(name: str, code: int) -> Any:
    from ottla.protocol.generated.delete_groups_response import DeletableGroupResult

    return DeletableGroupResult(name, code)


def _offset_delete(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.offset_delete_response import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic

    partitions = [OffsetDeleteResponsePartition(item.partition_index, code) for item in topic.partitions]
    return OffsetDeleteResponseTopic(topic.name, partitions)


def _describe_producers(topic: Any, code: int) -> Any:
    from ottla.protocol.generated.describe_producers_response import PartitionResponse, TopicResponse

    return TopicResponse(topic.name, [PartitionResponse(index, code) for index in topic.partition_indexes])


_READ_GROUP = for_one(Op.READ, Resource.GROUP, "group_id")
_WRITE_TRANSACTION = for_one(Op.WRITE, Resource.TRANSACTIONAL_ID, "transactional_id")
_BETWEEN_NODES = for_cluster(Op.CLUSTER_ACTION)

# One line for each API reads as a table; the formatter would spread it over ten.
# fmt: off
BROKER_RULES: dict[int, Rule] = {
    # data
    ApiKey.PRODUCE: data.produce,
    ApiKey.FETCH: data.fetch,
    ApiKey.LIST_OFFSETS: for_each("topics", Op.DESCRIBE, Resource.TOPIC, _list_offsets, name=by_name, into="topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: for_each(
        "topics", Op.DESCRIBE, Resource.TOPIC, _epoch_end, name=by_topic, into="topics", unless=Op.CLUSTER_ACTION
    ),
    ApiKey.DELETE_RECORDS: for_each("topics", Op.DELETE, Resource.TOPIC, _delete_records, name=by_name, into="topics"),
    ApiKey.DESCRIBE_PRODUCERS: for_each(
        "topics", Op.READ, Resource.TOPIC, _describe_producers, name=by_name, into="topics"
    ),
    # topics and the cluster
    ApiKey.METADATA: topics.metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
    ApiKey.DESCRIBE_CLUSTER: topics.describe_cluster,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.CREATE_PARTITIONS: for_each(
        "topics", Op.ALTER, Resource.TOPIC, _create_partitions, name=by_name, into="results"
    ),
    ApiKey.DESCRIBE_CONFIGS: topics.configs(Op.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: topics.configs(Op.ALTER_CONFIGS, "responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: topics.configs(Op.ALTER_CONFIGS, "responses"),
    ApiKey.LIST_CONFIG_RESOURCES: for_cluster(Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: for_cluster(Op.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: for_cluster(Op.DESCRIBE),
    ApiKey.ELECT_LEADERS: for_cluster(Op.ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: for_cluster(Op.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: for_cluster(Op.DESCRIBE),
    ApiKey.DESCRIBE_QUORUM: for_cluster(Op.DESCRIBE),
    ApiKey.UPDATE_FEATURES: for_cluster(Op.ALTER),
    ApiKey.UNREGISTER_BROKER: for_cluster(Op.ALTER),
    ApiKey.ADD_RAFT_VOTER: for_cluster(Op.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: for_cluster(Op.ALTER),
    # groups
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.JOIN_GROUP: _READ_GROUP,
    ApiKey.SYNC_GROUP: _READ_GROUP,
    ApiKey.HEARTBEAT: _READ_GROUP,
    ApiKey.LEAVE_GROUP: _READ_GROUP,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups("groups", "group_id"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.describe_groups("group_ids", "group_id"),
    ApiKey.SHARE_GROUP_DESCRIBE: groups.describe_groups("group_ids", "group_id"),
    ApiKey.STREAMS_GROUP_DESCRIBE: groups.describe_groups("group_ids", "group_id"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.group_heartbeat,
    ApiKey.SHARE_GROUP_HEARTBEAT: groups.group_heartbeat,
    ApiKey.STREAMS_GROUP_HEARTBEAT: groups.group_heartbeat,
    ApiKey.DELETE_GROUPS: for_each("groups_names", Op.DELETE, Resource.GROUP, _delete_group, name=itself, into="results"),
    ApiKey.OFFSET_COMMIT: all_of(
        _READ_GROUP,
        for_each("topics", Op.READ, Resource.TOPIC, offset_commit_topic, name=topic_name, into="topics"),
    ),
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.OFFSET_DELETE: all_of(
        for_one(Op.DELETE, Resource.GROUP, "group_id"),
        for_each("topics", Op.READ, Resource.TOPIC, _offset_delete, name=by_name, into="topics"),
    ),
    # transactions
    ApiKey.INIT_PRODUCER_ID: data.init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: data.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: all_of(_WRITE_TRANSACTION, _READ_GROUP),
    ApiKey.END_TXN: _WRITE_TRANSACTION,
    ApiKey.WRITE_TXN_MARKERS: for_cluster(Op.ALTER, Op.CLUSTER_ACTION),
    ApiKey.TXN_OFFSET_COMMIT: all_of(
        _WRITE_TRANSACTION,
        _READ_GROUP,
        for_each("topics", Op.READ, Resource.TOPIC, txn_offset_commit_topic, name=by_name, into="topics"),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: data.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: data.list_transactions,
    # security
    ApiKey.DESCRIBE_ACLS: for_cluster(Op.DESCRIBE),
    ApiKey.CREATE_ACLS: for_cluster(Op.ALTER),
    ApiKey.DELETE_ACLS: for_cluster(Op.ALTER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: for_cluster(Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: for_cluster(Op.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: for_cluster(Op.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: for_cluster(Op.ALTER),
    # tokens: the handlers ask by themselves, for owners may do more with their own
    ApiKey.CREATE_DELEGATION_TOKEN: for_everyone,
    ApiKey.RENEW_DELEGATION_TOKEN: for_everyone,
    ApiKey.EXPIRE_DELEGATION_TOKEN: for_everyone,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: for_everyone,
    # share groups
    ApiKey.SHARE_FETCH: shares.with_message(Op.READ),
    ApiKey.SHARE_ACKNOWLEDGE: shares.with_message(Op.READ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: shares.describe_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: shares.with_message(Op.READ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: shares.with_message(Op.DELETE),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _BETWEEN_NODES,
    ApiKey.READ_SHARE_GROUP_STATE: _BETWEEN_NODES,
    ApiKey.WRITE_SHARE_GROUP_STATE: _BETWEEN_NODES,
    ApiKey.DELETE_SHARE_GROUP_STATE: _BETWEEN_NODES,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _BETWEEN_NODES,
    # everyone
    ApiKey.API_VERSIONS: for_everyone,
    ApiKey.SASL_HANDSHAKE: for_everyone,
    ApiKey.SASL_AUTHENTICATE: for_everyone,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: for_everyone,
    ApiKey.PUSH_TELEMETRY: for_everyone,
}

CONTROLLER_RULES: dict[int, Rule] = {
    **BROKER_RULES,
    ApiKey.DESCRIBE_CLUSTER: for_cluster(Op.ALTER),
    ApiKey.FETCH: _BETWEEN_NODES,
    **dict.fromkeys(
        (
            ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH,
            ApiKey.ALTER_PARTITION, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.UPDATE_RAFT_VOTER,
        ),
        _BETWEEN_NODES,
    ),
}
"""Where controllers listen: the quorum and the brokers need CLUSTER_ACTION, tools what they need at a broker."""
# fmt: on
