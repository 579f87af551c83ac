"""Every API that a node serves: one row names its handler on each listener, its rule and its kind of work.

ApiVersions advertises exactly this table. A handler is a module of `ottla.broker.handlers`, a rule a name in a module of
`ottla.broker.authorization`; both are imported when the API is first called. Most handlers serve one API and are named
after it. What the active controller decides goes through `forwarded` (a broker passes the request on) and `decided` (the
controller's listener); `ottla.controller.controller.DECISIONS` names the function that decides. `quorum` passes requests to
the raft node, `share_group_state` serves the five APIs of the share coordinator.
"""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

from ottla.protocol.api_keys import ApiKey


class ApiLoad(IntFlag):
    """What makes an API heavy."""

    CHANGE = 1
    """The request changes state in one step, which no slice interrupts: it may have fewer elements."""
    LARGE_ANSWER = 2
    """The answer may be far larger than the request: handled in slices whatever the size of the request."""


PLAIN, CHANGE, LARGE_ANSWER = ApiLoad(0), ApiLoad.CHANGE, ApiLoad.LARGE_ANSWER


class Api(NamedTuple):
    broker: str | None
    """The handler on brokers' listeners."""
    rule: str
    work: ApiLoad = PLAIN
    controller: str | None = None
    """The handler on the controllers' listener."""
    controller_rule: str | None = None
    """Where it differs from `rule`."""
    max_version: int | None = None
    """Where fewer versions are served than Kafka 4.3's schemas have."""


def forwarded(rule: str, work: ApiLoad = CHANGE) -> Api:
    """The active controller decides: a broker passes the request on, a controller that is not active refuses."""
    return Api("forwarded", rule, work, controller="decided")


def on_both_listeners(handler: str, rule: str, work: ApiLoad = PLAIN, controller_rule: str | None = None) -> Api:
    return Api(handler, rule, work, controller=handler, controller_rule=controller_rule)


def between_nodes(handler: str) -> Api:
    """What brokers and controllers ask a controller for themselves."""
    return Api(None, "cluster.between_nodes", controller=handler)


API_TABLE: dict[ApiKey, Api] = {
    ApiKey.PRODUCE: Api("produce", "data.produce"),
    ApiKey.FETCH: Api("fetch", "data.fetch", controller="quorum", controller_rule="cluster.between_nodes"),
    ApiKey.LIST_OFFSETS: Api("list_offsets", "data.list_offsets"),
    ApiKey.METADATA: Api("metadata", "topics.metadata", LARGE_ANSWER),
    ApiKey.OFFSET_COMMIT: Api("offset_commit", "groups.offset_commit", CHANGE),
    ApiKey.OFFSET_FETCH: Api("offset_fetch", "groups.offset_fetch", LARGE_ANSWER),
    ApiKey.FIND_COORDINATOR: Api("find_coordinator", "groups.find_coordinator", LARGE_ANSWER),
    ApiKey.JOIN_GROUP: Api("join_group", "groups.read_group", CHANGE),
    ApiKey.HEARTBEAT: Api("heartbeat", "groups.read_group"),
    ApiKey.LEAVE_GROUP: Api("leave_group", "groups.read_group", CHANGE),
    ApiKey.SYNC_GROUP: Api("sync_group", "groups.read_group", CHANGE),
    ApiKey.DESCRIBE_GROUPS: Api("describe_groups", "groups.describe_groups", LARGE_ANSWER),
    ApiKey.LIST_GROUPS: Api("list_groups", "groups.list_groups", LARGE_ANSWER),
    ApiKey.SASL_HANDSHAKE: on_both_listeners("sasl_handshake", "rules.for_everyone"),
    ApiKey.API_VERSIONS: on_both_listeners("api_versions", "rules.for_everyone"),
    ApiKey.CREATE_TOPICS: forwarded("topics.create_topics"),
    ApiKey.DELETE_TOPICS: forwarded("topics.delete_topics"),
    ApiKey.DELETE_RECORDS: Api("delete_records", "data.delete_records", CHANGE),
    # Version 6 of InitProducerId is not released in Kafka 4.3.
    ApiKey.INIT_PRODUCER_ID: Api("init_producer_id", "data.init_producer_id", max_version=5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api("offset_for_leader_epoch", "data.offset_for_leader_epoch"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api("add_partitions_to_txn", "data.add_partitions_to_txn", CHANGE),
    ApiKey.ADD_OFFSETS_TO_TXN: Api("add_offsets_to_txn", "data.add_offsets_to_txn"),
    ApiKey.END_TXN: Api("end_txn", "data.write_transaction"),
    ApiKey.WRITE_TXN_MARKERS: Api("write_txn_markers", "data.write_txn_markers"),
    ApiKey.TXN_OFFSET_COMMIT: Api("txn_offset_commit", "data.txn_offset_commit", CHANGE),
    ApiKey.DESCRIBE_ACLS: on_both_listeners("describe_acls", "cluster.describe", LARGE_ANSWER),
    ApiKey.CREATE_ACLS: forwarded("cluster.alter"),
    ApiKey.DELETE_ACLS: forwarded("cluster.alter"),
    ApiKey.DESCRIBE_CONFIGS: Api("describe_configs", "topics.describe_configs", LARGE_ANSWER),
    ApiKey.ALTER_CONFIGS: forwarded("topics.alter_configs"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api("alter_replica_log_dirs", "cluster.alter", CHANGE),
    ApiKey.DESCRIBE_LOG_DIRS: Api("describe_log_dirs", "cluster.describe", LARGE_ANSWER),
    ApiKey.SASL_AUTHENTICATE: on_both_listeners("sasl_authenticate", "rules.for_everyone"),
    ApiKey.CREATE_PARTITIONS: forwarded("topics.create_partitions"),
    ApiKey.CREATE_DELEGATION_TOKEN: on_both_listeners("create_delegation_token", "rules.for_everyone", CHANGE),
    ApiKey.RENEW_DELEGATION_TOKEN: on_both_listeners("renew_delegation_token", "rules.for_everyone"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: on_both_listeners("renew_delegation_token", "rules.for_everyone"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api("describe_delegation_token", "rules.for_everyone", LARGE_ANSWER),
    ApiKey.DELETE_GROUPS: Api("delete_groups", "groups.delete_groups", CHANGE | LARGE_ANSWER),
    ApiKey.ELECT_LEADERS: forwarded("cluster.alter"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: forwarded("topics.incremental_alter_configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: forwarded("cluster.alter"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: forwarded("cluster.describe", CHANGE | LARGE_ANSWER),
    ApiKey.OFFSET_DELETE: Api("offset_delete", "groups.offset_delete", CHANGE),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api("describe_client_quotas", "cluster.describe_configs", LARGE_ANSWER),
    ApiKey.ALTER_CLIENT_QUOTAS: forwarded("cluster.alter_configs"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api("describe_user_scram_credentials", "cluster.describe", LARGE_ANSWER),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: forwarded("cluster.alter"),
    ApiKey.VOTE: between_nodes("quorum"),
    ApiKey.BEGIN_QUORUM_EPOCH: between_nodes("quorum"),
    ApiKey.END_QUORUM_EPOCH: between_nodes("quorum"),
    ApiKey.DESCRIBE_QUORUM: forwarded("cluster.describe"),
    ApiKey.ALTER_PARTITION: between_nodes("decided"),
    ApiKey.UPDATE_FEATURES: forwarded("cluster.alter"),
    ApiKey.ENVELOPE: between_nodes("envelope"),
    ApiKey.FETCH_SNAPSHOT: between_nodes("quorum"),
    ApiKey.DESCRIBE_CLUSTER: on_both_listeners(
        "describe_cluster", "topics.describe_cluster", LARGE_ANSWER, controller_rule="cluster.alter"
    ),
    ApiKey.DESCRIBE_PRODUCERS: Api("describe_producers", "data.describe_producers", LARGE_ANSWER),
    ApiKey.BROKER_REGISTRATION: between_nodes("decided"),
    ApiKey.BROKER_HEARTBEAT: between_nodes("broker_heartbeat"),
    ApiKey.UNREGISTER_BROKER: forwarded("cluster.alter"),
    ApiKey.DESCRIBE_TRANSACTIONS: Api("describe_transactions", "data.describe_transactions", LARGE_ANSWER),
    ApiKey.LIST_TRANSACTIONS: Api("list_transactions", "data.list_transactions", LARGE_ANSWER),
    ApiKey.ALLOCATE_PRODUCER_IDS: between_nodes("decided"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api("consumer_group_heartbeat", "groups.group_heartbeat", CHANGE),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api("consumer_group_describe", "groups.consumer_group_describe", LARGE_ANSWER),
    ApiKey.CONTROLLER_REGISTRATION: between_nodes("decided"),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api("get_telemetry_subscriptions", "rules.for_everyone"),
    ApiKey.PUSH_TELEMETRY: Api("push_telemetry", "rules.for_everyone"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: between_nodes("decided"),
    ApiKey.LIST_CONFIG_RESOURCES: Api("list_config_resources", "cluster.describe_configs", LARGE_ANSWER),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(
        "describe_topic_partitions", "topics.describe_topic_partitions", LARGE_ANSWER
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: Api("share_group_heartbeat", "groups.group_heartbeat", CHANGE),
    ApiKey.SHARE_GROUP_DESCRIBE: Api("share_group_describe", "groups.share_group_describe", LARGE_ANSWER),
    ApiKey.SHARE_FETCH: Api("share_fetch", "shares.share_fetch", CHANGE),
    ApiKey.SHARE_ACKNOWLEDGE: Api("share_acknowledge", "shares.share_acknowledge", CHANGE),
    ApiKey.ADD_RAFT_VOTER: Api("forwarded", "cluster.alter", CHANGE, controller="quorum"),
    ApiKey.REMOVE_RAFT_VOTER: Api("forwarded", "cluster.alter", CHANGE, controller="quorum"),
    ApiKey.UPDATE_RAFT_VOTER: between_nodes("quorum"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Api("share_group_state", "cluster.between_nodes"),
    ApiKey.READ_SHARE_GROUP_STATE: Api("share_group_state", "cluster.between_nodes"),
    ApiKey.WRITE_SHARE_GROUP_STATE: Api("share_group_state", "cluster.between_nodes"),
    ApiKey.DELETE_SHARE_GROUP_STATE: Api("share_group_state", "cluster.between_nodes"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Api("share_group_state", "cluster.between_nodes"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Api("streams_group_heartbeat", "groups.group_heartbeat", CHANGE),
    ApiKey.STREAMS_GROUP_DESCRIBE: Api("streams_group_describe", "groups.streams_group_describe", LARGE_ANSWER),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api("describe_share_group_offsets", "shares.describe_offsets", LARGE_ANSWER),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Api("alter_share_group_offsets", "shares.alter_share_group_offsets", CHANGE),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Api("delete_share_group_offsets", "shares.delete_share_group_offsets", CHANGE),
}


class ServedApi(NamedTuple):
    """One API on one kind of listener."""

    api_key: int
    handler: str
    rule: str
    work: ApiLoad
    max_version: int | None


def _on_brokers() -> dict[int, ServedApi]:
    return {
        int(key): ServedApi(int(key), api.broker, api.rule, api.work, api.max_version)
        for key, api in API_TABLE.items()
        if api.broker is not None
    }


def _on_controllers() -> dict[int, ServedApi]:
    return {
        int(key): ServedApi(int(key), api.controller, api.controller_rule or api.rule, api.work, api.max_version)
        for key, api in API_TABLE.items()
        if api.controller is not None
    }


_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
BROKER_APIS: dict[int, ServedApi] = {key: api for key, api in _on_brokers().items() if key not in _TELEMETRY}
TELEMETRY_APIS: dict[int, ServedApi] = {key: api for key, api in _on_brokers().items() if key in _TELEMETRY}
"""On a broker's listeners too, where the node reports what clients push (KIP-714)."""
CONTROLLER_APIS: dict[int, ServedApi] = _on_controllers()
"""On the controller's listener: what admin tools ask with --bootstrap-controller, and what other nodes ask."""
