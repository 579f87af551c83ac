"""Which APIs are answered, by which handler, on which kind of listener. ApiVersions advertises exactly this table.

`max_version` is set only where we answer fewer versions than Kafka 4.3's schemas have.
"""

from __future__ import annotations

from typing import NamedTuple


class ServedApi(NamedTuple):
    api_key: int
    module: str
    max_version: int | None = None


_BROKER = (
    ServedApi(0, "produce"),
    ServedApi(1, "fetch"),
    ServedApi(2, "list_offsets"),
    ServedApi(3, "metadata"),
    ServedApi(8, "offset_commit"),
    ServedApi(9, "offset_fetch"),
    ServedApi(10, "find_coordinator"),
    ServedApi(11, "join_group"),
    ServedApi(12, "heartbeat"),
    ServedApi(13, "leave_group"),
    ServedApi(14, "sync_group"),
    ServedApi(15, "describe_groups"),
    ServedApi(16, "list_groups"),
    ServedApi(17, "sasl_handshake"),
    ServedApi(18, "api_versions"),
    ServedApi(19, "forwarded"),
    ServedApi(20, "forwarded"),
    ServedApi(21, "delete_records"),
    ServedApi(22, "init_producer_id", 5),  # version 6 is not released in Kafka 4.3
    ServedApi(23, "offset_for_leader_epoch"),
    ServedApi(24, "add_partitions_to_txn"),
    ServedApi(25, "add_offsets_to_txn"),
    ServedApi(26, "end_txn"),
    ServedApi(27, "write_txn_markers"),
    ServedApi(28, "txn_offset_commit"),
    ServedApi(29, "describe_acls"),
    ServedApi(30, "forwarded"),
    ServedApi(31, "forwarded"),
    ServedApi(32, "describe_configs"),
    ServedApi(33, "forwarded"),
    ServedApi(34, "alter_replica_log_dirs"),
    ServedApi(35, "describe_log_dirs"),
    ServedApi(36, "sasl_authenticate"),
    ServedApi(37, "forwarded"),
    ServedApi(38, "create_delegation_token"),
    ServedApi(39, "renew_delegation_token"),
    ServedApi(40, "renew_delegation_token"),
    ServedApi(41, "describe_delegation_token"),
    ServedApi(42, "delete_groups"),
    ServedApi(43, "forwarded"),
    ServedApi(44, "forwarded"),
    ServedApi(45, "forwarded"),
    ServedApi(46, "forwarded"),
    ServedApi(47, "offset_delete"),
    ServedApi(48, "describe_client_quotas"),
    ServedApi(49, "forwarded"),
    ServedApi(50, "describe_user_scram_credentials"),
    ServedApi(51, "forwarded"),
    ServedApi(55, "forwarded"),
    ServedApi(57, "forwarded"),
    ServedApi(60, "describe_cluster"),
    ServedApi(61, "describe_producers"),
    ServedApi(64, "forwarded"),
    ServedApi(65, "describe_transactions"),
    ServedApi(66, "list_transactions"),
    ServedApi(68, "consumer_group_heartbeat"),
    ServedApi(69, "consumer_group_describe"),
    ServedApi(74, "list_config_resources"),
    ServedApi(75, "describe_topic_partitions"),
    ServedApi(76, "share_group_heartbeat"),
    ServedApi(77, "share_group_describe"),
    ServedApi(78, "share_fetch"),
    ServedApi(79, "share_acknowledge"),
    ServedApi(80, "forwarded"),
    ServedApi(81, "forwarded"),
    ServedApi(83, "share_group_state"),
    ServedApi(84, "share_group_state"),
    ServedApi(85, "share_group_state"),
    ServedApi(86, "share_group_state"),
    ServedApi(87, "share_group_state"),
    ServedApi(88, "streams_group_heartbeat"),
    ServedApi(89, "streams_group_describe"),
    ServedApi(90, "describe_share_group_offsets"),
    ServedApi(91, "alter_share_group_offsets"),
    ServedApi(92, "delete_share_group_offsets"),
)

BROKER_APIS: dict[int, ServedApi] = {api.api_key: api for api in _BROKER}

_BETWEEN_NODES = (
    ServedApi(56, "decided"),  # AlterPartition
    ServedApi(58, "envelope"),
    ServedApi(62, "decided"),  # BrokerRegistration
    ServedApi(63, "broker_heartbeat"),
    ServedApi(67, "decided"),  # AllocateProducerIds
    ServedApi(70, "decided"),  # ControllerRegistration
    ServedApi(73, "decided"),  # AssignReplicasToDirs
)
"""What brokers and controllers ask the active controller for themselves."""

_QUORUM_KEYS = (1, 52, 53, 54, 59, 80, 81, 82)
"""Fetch, Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot of the metadata log; Add-, Remove-, UpdateRaftVoter."""

_CONTROLLER_KEYS = (17, 18, 19, 20, 29, 30, 31, 33, 36, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 60, 64)


def _decided(api: ServedApi) -> ServedApi:
    """A controller that is not the active one says so, it does not hand on."""
    return api._replace(module="decided") if api.module == "forwarded" else api


CONTROLLER_APIS: dict[int, ServedApi] = {
    **{key: _decided(BROKER_APIS[key]) for key in _CONTROLLER_KEYS},
    **{api.api_key: api for api in _BETWEEN_NODES},
    **{key: ServedApi(key, "quorum") for key in _QUORUM_KEYS},
}
"""On the controller's listener: what admin tools ask with --bootstrap-controller, and what other nodes ask."""

TELEMETRY_APIS: dict[int, ServedApi] = {
    71: ServedApi(71, "get_telemetry_subscriptions"),
    72: ServedApi(72, "push_telemetry"),
}
"""On a broker's listeners too, where the node tells what clients push (KIP-714)."""
