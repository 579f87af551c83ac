"""Operation x resource x permission: what is granted, and what is asked. Each grant is a principal of its own.

A probe changes nothing where it is allowed (validate_only, names that do not exist, refused values), so that the order of
the cases does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.model.acls import Operation, Permission
from ottla.model.acls import PatternType as Pattern
from ottla.model.acls import ResourceType as Resource
from ottla.model.ids import Uuid
from ottla.protocol.generated import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    add_raft_voter_request,
    alter_client_quotas_request,
    alter_configs_request,
    alter_partition_reassignments_request,
    alter_replica_log_dirs_request,
    alter_share_group_offsets_request,
    alter_user_scram_credentials_request,
    consumer_group_describe_request,
    consumer_group_heartbeat_request,
    create_acls_request,
    create_delegation_token_request,
    create_partitions_request,
    create_topics_request,
    delete_acls_request,
    delete_groups_request,
    delete_records_request,
    delete_share_group_offsets_request,
    delete_share_group_state_request,
    delete_topics_request,
    describe_acls_request,
    describe_client_quotas_request,
    describe_cluster_request,
    describe_configs_request,
    describe_delegation_token_request,
    describe_groups_request,
    describe_log_dirs_request,
    describe_producers_request,
    describe_quorum_request,
    describe_share_group_offsets_request,
    describe_topic_partitions_request,
    describe_transactions_request,
    describe_user_scram_credentials_request,
    elect_leaders_request,
    end_txn_request,
    expire_delegation_token_request,
    fetch_request,
    find_coordinator_request,
    heartbeat_request,
    incremental_alter_configs_request,
    init_producer_id_request,
    initialize_share_group_state_request,
    join_group_request,
    leave_group_request,
    list_config_resources_request,
    list_groups_request,
    list_offsets_request,
    list_partition_reassignments_request,
    list_transactions_request,
    metadata_request,
    offset_commit_request,
    offset_delete_request,
    offset_fetch_request,
    offset_for_leader_epoch_request,
    produce_request,
    read_share_group_state_request,
    read_share_group_state_summary_request,
    remove_raft_voter_request,
    renew_delegation_token_request,
    share_acknowledge_request,
    share_fetch_request,
    share_group_describe_request,
    share_group_heartbeat_request,
    streams_group_describe_request,
    streams_group_heartbeat_request,
    sync_group_request,
    txn_offset_commit_request,
    unregister_broker_request,
    update_features_request,
    write_share_group_state_request,
    write_txn_markers_request,
)
from ottla.protocol.primitives import Message, Struct
from ottla.security.acls import CLUSTER_NAME, Acl

TOPIC, OTHER, GHOST = "matrix-topic", "other-topic", "matrix-ghost"
GROUP, TXN, APPLICATION = "matrix-group", "matrix-txn", "matrix-app"
_NAMES = {
    Resource.TOPIC: TOPIC,
    Resource.GROUP: GROUP,
    Resource.CLUSTER: CLUSTER_NAME,
    Resource.TRANSACTIONAL_ID: TXN,
}
_OPERATIONS = {
    Resource.TOPIC: "ALL READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    Resource.GROUP: "ALL READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    Resource.CLUSTER: "ALL CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    Resource.TRANSACTIONAL_ID: "ALL WRITE DESCRIBE",
}


def _acl(
    resource: Resource,
    operation: str,
    permission: Permission = Permission.ALLOW,
    *,
    name: str | None = None,
    pattern: Pattern = Pattern.LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(resource, name or _NAMES[resource], pattern, "", host, Operation[operation], permission)


def grants() -> dict[str, list[Acl]]:
    """Name of the case -> its ACLs; the principal is filled in by the test."""
    deny, prefixed = Permission.DENY, Pattern.PREFIXED
    found: dict[str, list[Acl]] = {"nothing": []}
    for resource, names in _OPERATIONS.items():
        for operation in names.split():
            found[f"{resource.name} {operation}"] = [_acl(resource, operation)]
    for operation in ("READ", "WRITE", "DESCRIBE", "DELETE", "CREATE", "ALTER_CONFIGS"):
        everything = _acl(Resource.TOPIC, "ALL")
        found[f"TOPIC ALL but {operation}"] = [everything, _acl(Resource.TOPIC, operation, deny)]
    for operation in ("READ", "DESCRIBE"):
        found[f"GROUP ALL but {operation}"] = [_acl(Resource.GROUP, "ALL"), _acl(Resource.GROUP, operation, deny)]
    for operation in ("ALTER", "DESCRIBE"):
        found[f"CLUSTER ALL but {operation}"] = [_acl(Resource.CLUSTER, "ALL"), _acl(Resource.CLUSTER, operation, deny)]
    for operation in ("READ", "WRITE", "CREATE"):
        found[f"TOPIC prefix {operation}"] = [_acl(Resource.TOPIC, operation, name="matrix-", pattern=prefixed)]
        found[f"TOPIC * {operation}"] = [_acl(Resource.TOPIC, operation, name="*")]
    found["GROUP prefix READ"] = [_acl(Resource.GROUP, "READ", name="matrix", pattern=prefixed)]
    found["other prefix"] = [_acl(Resource.TOPIC, "ALL", name="matrix-topics", pattern=prefixed)]
    found["from here"] = [_acl(Resource.TOPIC, "READ", host="127.0.0.1")]
    found["from there"] = [_acl(Resource.TOPIC, "READ", host="10.1.2.3")]
    found["not from here"] = [_acl(Resource.TOPIC, "ALL"), _acl(Resource.TOPIC, "READ", deny, host="127.0.0.1")]
    found["* but not prefix"] = [
        _acl(Resource.TOPIC, "ALL", name="*"),
        _acl(Resource.TOPIC, "WRITE", deny, name="matrix", pattern=prefixed),
    ]
    found["prefix but not *"] = [
        _acl(Resource.TOPIC, "WRITE", name="matrix", pattern=prefixed),
        _acl(Resource.TOPIC, "WRITE", deny, name="*"),
    ]
    found["consumer"] = [_acl(Resource.GROUP, "READ"), _acl(Resource.TOPIC, "READ")]
    found["transactional producer"] = [_acl(Resource.TRANSACTIONAL_ID, "WRITE"), _acl(Resource.TOPIC, "WRITE")]
    found["streams"] = [
        _acl(Resource.GROUP, "READ", name=APPLICATION),
        _acl(Resource.TOPIC, "READ"),
        _acl(Resource.TOPIC, "DESCRIBE", name=APPLICATION, pattern=prefixed),
    ]
    found["streams that creates"] = [
        *found["streams"],
        _acl(Resource.TOPIC, "CREATE", name=APPLICATION, pattern=prefixed),
    ]
    found["everything"] = [_acl(resource, "ALL") for resource in _OPERATIONS]
    return found


def probes(topic_id: Uuid, batch: bytes, transactional_batch: bytes) -> dict[str, tuple[Message, int]]:
    """Name -> request and version."""
    r = produce_request

    def produce(data: bytes, transactional_id: str | None = None, topic: str = TOPIC) -> Message:
        return r.ProduceRequest(
            transactional_id, 1, 1000, [r.TopicProduceData(topic, partition_data=[r.PartitionProduceData(0, data)])]
        )

    f = fetch_request

    def fetch(replica_id: int = -1, names: Iterable[str] = (TOPIC,)) -> Message:
        return f.FetchRequest(
            replica_id=replica_id, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
            topics=[
                f.FetchTopic(name, partitions=[f.FetchPartition(0, partition_max_bytes=1 << 20)]) for name in names
            ],
        )  # fmt: skip

    m, sh = metadata_request, streams_group_heartbeat_request
    iss, rss, rsss = (
        initialize_share_group_state_request, read_share_group_state_request, read_share_group_state_summary_request,
    )  # fmt: skip
    wss, ch = write_share_group_state_request, consumer_group_heartbeat_request
    asgo, dsgo = alter_share_group_offsets_request, describe_share_group_offsets_request

    def metadata(*names: str, create: bool = False) -> Message:
        return m.MetadataRequest([m.MetadataRequestTopic(name=name) for name in names], create, True, True)

    lo, oc, of, fc = list_offsets_request, offset_commit_request, offset_fetch_request, find_coordinator_request
    ct, dt, cp = create_topics_request, delete_topics_request, create_partitions_request
    dc, ac, ic = describe_configs_request, alter_configs_request, incremental_alter_configs_request
    dr, oe, od, dp = (
        delete_records_request, offset_for_leader_epoch_request, offset_delete_request, describe_producers_request,
    )  # fmt: skip
    at, to, wm = add_partitions_to_txn_request, txn_offset_commit_request, write_txn_markers_request
    ca, da, cq, sc = (
        create_acls_request, delete_acls_request, alter_client_quotas_request, alter_user_scram_credentials_request,
    )  # fmt: skip
    rd, pr, tp = (
        alter_replica_log_dirs_request, alter_partition_reassignments_request, describe_topic_partitions_request,
    )  # fmt: skip
    resources = [(2, TOPIC), (4, "1"), (32, GROUP)]
    found: dict[str, tuple[Message, int]] = {
        "Produce": (produce(batch), 9),
        "Produce transactional": (produce(transactional_batch, TXN), 9),
        "Produce transactional without id": (produce(transactional_batch), 9),
        "Produce to a ghost": (produce(batch, topic=GHOST), 9),
        "Fetch": (fetch(), 12),
        "Fetch two": (fetch(names=(TOPIC, OTHER, GHOST)), 12),
        "Fetch by id": (
            f.FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
                topics=[f.FetchTopic("", topic_id, [f.FetchPartition(0, partition_max_bytes=1 << 20)])],
            ), 13,
        ),
        "Fetch as a follower": (fetch(77), 12),
        "ListOffsets": (
            lo.ListOffsetsRequest(
                -1, 0, [lo.ListOffsetsTopic(name, [lo.ListOffsetsPartition(0, timestamp=-1)]) for name in (TOPIC, OTHER)]
            ), 7,
        ),
        "Metadata": (metadata(TOPIC, OTHER), 9),
        "Metadata of a ghost": (metadata(GHOST), 9),
        "Metadata of everything": (m.MetadataRequest(None, False, True, True), 10),
        "Metadata by id": (m.MetadataRequest([m.MetadataRequestTopic(topic_id, None)], False), 12),
        "DescribeTopicPartitions": (
            tp.DescribeTopicPartitionsRequest([tp.TopicRequest(TOPIC), tp.TopicRequest(OTHER)]), 0,
        ),
        "DescribeCluster": (describe_cluster_request.DescribeClusterRequest(True), 1),
        "OffsetCommit": (
            oc.OffsetCommitRequest(
                GROUP, -1, "", topics=[
                    oc.OffsetCommitRequestTopic(name, partitions=[oc.OffsetCommitRequestPartition(0, 1)])
                    for name in (TOPIC, OTHER)
                ],
            ), 8,
        ),
        "OffsetFetch": (
            of.OffsetFetchRequest(
                groups=[of.OffsetFetchRequestGroup(GROUP, topics=[of.OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])]
            ), 8,
        ),
        "OffsetFetch everything": (of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(GROUP, topics=None)]), 8),
        "OffsetFetch single": (of.OffsetFetchRequest(GROUP, [of.OffsetFetchRequestTopic(TOPIC, [0])]), 7),
        "FindCoordinator group": (fc.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP, "other-group"]), 4),
        "FindCoordinator old": (fc.FindCoordinatorRequest(GROUP, 0), 3),
        "JoinGroup": (
            join_group_request.JoinGroupRequest(
                GROUP, 1, 1, "", None, "consumer", [join_group_request.JoinGroupRequestProtocol("range", b"")]
            ), 5,
        ),
        "SyncGroup": (sync_group_request.SyncGroupRequest(GROUP, 1, "nobody"), 3),
        "Heartbeat": (heartbeat_request.HeartbeatRequest(GROUP, 1, "nobody"), 3),
        "LeaveGroup": (
            leave_group_request.LeaveGroupRequest(GROUP, members=[leave_group_request.MemberIdentity("nobody")]), 3,
        ),
        "StreamsGroupHeartbeat": (sh.StreamsGroupHeartbeatRequest(GROUP, "nobody", 1), 0),
        "StreamsGroupHeartbeat with topics": (
            sh.StreamsGroupHeartbeatRequest(
                GROUP, "nobody", 1, topology=sh.Topology(0, [sh.Subtopology("0", [TOPIC], repartition_sink_topics=[OTHER])])
            ), 0,
        ),
        "StreamsGroupHeartbeat with one topic": (
            sh.StreamsGroupHeartbeatRequest(GROUP, "nobody", 1, topology=sh.Topology(0, [sh.Subtopology("0", [TOPIC])])), 0,
        ),
        "StreamsGroupDescribe": (
            streams_group_describe_request.StreamsGroupDescribeRequest([GROUP, "other-group"], True), 0,
        ),
        "ShareGroupHeartbeat": (share_group_heartbeat_request.ShareGroupHeartbeatRequest(GROUP, "nobody", 1), 1),
        "ShareGroupHeartbeat with topics": (
            share_group_heartbeat_request.ShareGroupHeartbeatRequest(GROUP, "nobody", 1, None, [TOPIC, OTHER]), 1,
        ),
        "ShareGroupHeartbeat with one topic": (
            share_group_heartbeat_request.ShareGroupHeartbeatRequest(GROUP, "nobody", 1, None, [TOPIC]), 1,
        ),
        "ShareGroupDescribe": (share_group_describe_request.ShareGroupDescribeRequest([GROUP, "other-group"], True), 1),
        "ShareFetch": (share_fetch_request.ShareFetchRequest(GROUP, "nobody", 5), 2),
        "ShareAcknowledge": (share_acknowledge_request.ShareAcknowledgeRequest(GROUP, "nobody", 5), 2),
        "ConsumerGroupHeartbeat": (ch.ConsumerGroupHeartbeatRequest(GROUP, "nobody", 1), 1),
        "ConsumerGroupHeartbeat with topics": (
            ch.ConsumerGroupHeartbeatRequest(GROUP, "nobody", 1, subscribed_topic_names=[TOPIC, OTHER]), 1,
        ),
        "ConsumerGroupHeartbeat with one topic": (
            ch.ConsumerGroupHeartbeatRequest(GROUP, "nobody", 1, subscribed_topic_names=[TOPIC]), 1,
        ),
        "ConsumerGroupDescribe": (
            consumer_group_describe_request.ConsumerGroupDescribeRequest([GROUP, "other-group"], True), 1,
        ),
        "CreateDelegationToken for another": (
            create_delegation_token_request.CreateDelegationTokenRequest("User", "somebody"), 3,
        ),
        "RenewDelegationToken": (renew_delegation_token_request.RenewDelegationTokenRequest(b"no such token"), 2),
        "ExpireDelegationToken": (expire_delegation_token_request.ExpireDelegationTokenRequest(b"no such token"), 2),
        "DescribeDelegationToken": (describe_delegation_token_request.DescribeDelegationTokenRequest(None), 3),
        "DescribeDelegationToken of another": (
            describe_delegation_token_request.DescribeDelegationTokenRequest(
                [describe_delegation_token_request.DescribeDelegationTokenOwner("User", "somebody")]
            ), 3,
        ),
        "InitializeShareGroupState": (
            iss.InitializeShareGroupStateRequest(GROUP, [iss.InitializeStateData(topic_id, [iss.PartitionData(7, -5)])]), 0,
        ),
        "ReadShareGroupState": (
            rss.ReadShareGroupStateRequest(GROUP, [rss.ReadStateData(topic_id, [rss.PartitionData(7)])]), 0,
        ),
        "ReadShareGroupStateSummary": (
            rsss.ReadShareGroupStateSummaryRequest(
                GROUP, [rsss.ReadStateSummaryData(topic_id, [rsss.PartitionData(7)])]
            ), 0,
        ),
        "WriteShareGroupState": (
            wss.WriteShareGroupStateRequest(GROUP, [wss.WriteStateData(topic_id, [wss.PartitionData(7, -5)])]), 0,
        ),
        "DeleteShareGroupState": (
            delete_share_group_state_request.DeleteShareGroupStateRequest(
                GROUP,
                [
                    delete_share_group_state_request.DeleteStateData(
                        topic_id, [delete_share_group_state_request.PartitionData(0)]
                    )
                ],
            ), 0,
        ),
        "DescribeShareGroupOffsets": (
            dsgo.DescribeShareGroupOffsetsRequest(
                [dsgo.DescribeShareGroupOffsetsRequestGroup(name, None) for name in (GROUP, "other-group")]
            ), 1,
        ),
        "AlterShareGroupOffsets": (
            asgo.AlterShareGroupOffsetsRequest(
                GROUP,
                [asgo.AlterShareGroupOffsetsRequestTopic(OTHER, [asgo.AlterShareGroupOffsetsRequestPartition(0, 0)])],
            ), 0,
        ),
        "DeleteShareGroupOffsets": (
            delete_share_group_offsets_request.DeleteShareGroupOffsetsRequest(
                GROUP, [delete_share_group_offsets_request.DeleteShareGroupOffsetsRequestTopic(TOPIC)]
            ), 0,
        ),
        "DescribeGroups": (describe_groups_request.DescribeGroupsRequest([GROUP, "other-group"], True), 5),
        "ListGroups": (list_groups_request.ListGroupsRequest(), 3),
        "DeleteGroups": (delete_groups_request.DeleteGroupsRequest(["matrix-ghost", GROUP + "-gone"]), 2),
        "OffsetDelete": (
            od.OffsetDeleteRequest(
                GROUP, [od.OffsetDeleteRequestTopic(OTHER, [od.OffsetDeleteRequestPartition(0)])]
            ), 0,
        ),
        "CreateTopics": (
            ct.CreateTopicsRequest(
                [ct.CreatableTopic(name, 1, 1) for name in (GHOST, "unheard-of")], 1000, True
            ), 5,
        ),
        "CreateTopics that is there": (ct.CreateTopicsRequest([ct.CreatableTopic(TOPIC, 1, 1)], 1000, True), 5),
        "DeleteTopics": (dt.DeleteTopicsRequest(topic_names=[GHOST], timeout_ms=1000), 5),
        "CreatePartitions": (
            cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(name, 9) for name in (TOPIC, GHOST)], 1000, True), 3,
        ),
        "DeleteRecords": (
            dr.DeleteRecordsRequest(
                [dr.DeleteRecordsTopic(TOPIC, [dr.DeleteRecordsPartition(0, 0)])], 1000
            ), 2,
        ),
        "OffsetForLeaderEpoch": (
            oe.OffsetForLeaderEpochRequest(
                -1, [oe.OffsetForLeaderTopic(TOPIC, [oe.OffsetForLeaderPartition(0, -1, 0)])]
            ), 4,
        ),
        "DescribeProducers": (dp.DescribeProducersRequest([dp.TopicRequest(TOPIC, [0])]), 0),
        "DescribeConfigs": (
            dc.DescribeConfigsRequest([dc.DescribeConfigsResource(*resource, ["retention.ms"]) for resource in resources]),
            4,
        ),
        "AlterConfigs": (
            ac.AlterConfigsRequest([ac.AlterConfigsResource(*resource, []) for resource in resources[:1]], True), 2,
        ),
        "IncrementalAlterConfigs": (
            ic.IncrementalAlterConfigsRequest(
                [ic.AlterConfigsResource(2, TOPIC, [ic.AlterableConfig("retention.ms", 0, "1000")])], True
            ), 1,
        ),
        "IncrementalAlterConfigs of a broker": (
            ic.IncrementalAlterConfigsRequest(
                [ic.AlterConfigsResource(4, "1", [ic.AlterableConfig("log.retention.ms", 0, "1000")])], True
            ), 1,
        ),
        "ListConfigResources": (list_config_resources_request.ListConfigResourcesRequest(), 0),
        "InitProducerId": (init_producer_id_request.InitProducerIdRequest(None, 1000), 4),
        "InitProducerId of the transaction": (init_producer_id_request.InitProducerIdRequest(TXN, -5), 4),
        "AddPartitionsToTxn": (
            at.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=TXN, v3_and_below_producer_id=99_999, v3_and_below_producer_epoch=0,
                v3_and_below_topics=[at.AddPartitionsToTxnTopic(name, [0]) for name in (TOPIC, OTHER)],
            ), 3,
        ),
        "AddPartitionsToTxn of a broker": (
            at.AddPartitionsToTxnRequest(
                transactions=[
                    at.AddPartitionsToTxnTransaction(TXN, 99_999, 0, True, [at.AddPartitionsToTxnTopic(TOPIC, [0])])
                ]
            ), 4,
        ),
        "AddOffsetsToTxn": (add_offsets_to_txn_request.AddOffsetsToTxnRequest(TXN, 99_999, 0, GROUP), 3),
        "EndTxn": (end_txn_request.EndTxnRequest(TXN, 99_999, 0, True), 3),
        "TxnOffsetCommit": (
            to.TxnOffsetCommitRequest(
                TXN, GROUP, 99_999, 0, topics=[
                    to.TxnOffsetCommitRequestTopic(name, [to.TxnOffsetCommitRequestPartition(7, 1)])
                    for name in (TOPIC, OTHER)
                ],
            ), 3,
        ),
        "WriteTxnMarkers": (
            wm.WriteTxnMarkersRequest(
                [wm.WritableTxnMarker(99_999, 0, False, [wm.WritableTxnMarkerTopic(GHOST, [0])], 0)]
            ), 1,
        ),
        "DescribeTransactions": (describe_transactions_request.DescribeTransactionsRequest([TXN, "other-txn"]), 0),
        "ListTransactions": (list_transactions_request.ListTransactionsRequest(), 1),
        "DescribeAcls": (
            describe_acls_request.DescribeAclsRequest(2, "no-such-topic", 3, None, None, 1, 1), 2,
        ),
        "CreateAcls": (ca.CreateAclsRequest([ca.AclCreation(4, "x", 3, "User:x", "*", 3, 3)]), 2),
        "CreateAcls of any": (ca.CreateAclsRequest([ca.AclCreation(1, "x", 3, "User:x", "*", 3, 3)]), 2),
        "CreateAcls without a principal": (ca.CreateAclsRequest([ca.AclCreation(2, "", 3, "nobody", "*", 3, 3)]), 2),
        "DeleteAcls": (da.DeleteAclsRequest([da.DeleteAclsFilter(2, "no-such-topic", 3, None, None, 1, 1)]), 2),
        "DescribeClientQuotas": (describe_client_quotas_request.DescribeClientQuotasRequest([], False), 1),
        "AlterClientQuotas": (
            cq.AlterClientQuotasRequest(
                [cq.EntryData([cq.EntityData("user", "x")], [cq.OpData("producer_byte_rate", 1024.0)])], True
            ), 1,
        ),
        "DescribeUserScramCredentials": (
            describe_user_scram_credentials_request.DescribeUserScramCredentialsRequest(
                [describe_user_scram_credentials_request.UserName("nobody")]
            ), 0,
        ),
        "AlterUserScramCredentials": (
            sc.AlterUserScramCredentialsRequest([sc.ScramCredentialDeletion("nobody", 1)]), 0,
        ),
        "AlterReplicaLogDirs": (
            rd.AlterReplicaLogDirsRequest(
                [rd.AlterReplicaLogDir("/no/such/dir", [rd.AlterReplicaLogDirTopic(TOPIC, [0])])]
            ), 2,
        ),
        # Refused with no directory at all; the code is told since version 3.
        **{
            f"DescribeLogDirs v{version}": (describe_log_dirs_request.DescribeLogDirsRequest([]), version)
            for version in range(1, 6)
        },
        "ElectLeaders": (
            elect_leaders_request.ElectLeadersRequest(
                0, [elect_leaders_request.TopicPartitions(GHOST, [0])], 1000
            ), 2,
        ),
        "AlterPartitionReassignments": (
            pr.AlterPartitionReassignmentsRequest(
                1000, topics=[pr.ReassignableTopic(GHOST, [pr.ReassignablePartition(0, [1])])]
            ), 0,
        ),
        "ListPartitionReassignments": (
            list_partition_reassignments_request.ListPartitionReassignmentsRequest(1000, None), 0,
        ),
        "DescribeQuorum": (
            describe_quorum_request.DescribeQuorumRequest(
                [describe_quorum_request.TopicData("__cluster_metadata", [describe_quorum_request.PartitionData(0)])]
            ), 1,
        ),
        "UpdateFeatures": (
            update_features_request.UpdateFeaturesRequest(
                1000, [update_features_request.FeatureUpdateKey("no.such.feature", 1)], True
            ), 1,
        ),
        "UnregisterBroker": (unregister_broker_request.UnregisterBrokerRequest(4711), 0),
        "AddRaftVoter": (
            add_raft_voter_request.AddRaftVoterRequest(
                None, 1000, 4711, b"\x07" * 16, [add_raft_voter_request.Listener("CONTROLLER", "127.0.0.1", 1)]
            ), 0,
        ),
        "RemoveRaftVoter": (remove_raft_voter_request.RemoveRaftVoterRequest(None, 4711, b"\x07" * 16), 0),
    }  # fmt: skip
    return found


_IDENTITIES = (
    "name", "topic", "topic_name", "group_id", "key", "user", "transactional_id", "resource_type", "resource_name",
    "partition_index", "index", "partition", "member_id", "config_source",
)  # fmt: skip
_FACTS = ("error_code", "authorized_operations")


def facts(value: Any) -> list[tuple[Any, ...]]:
    """Every error code and bit field of a response with the names around it, sorted: order is nobody's promise."""
    found: list[tuple[Any, ...]] = []

    def walk(item: Any, path: tuple[Any, ...]) -> None:
        if isinstance(item, list | tuple):
            for part in item:
                walk(part, path)
            return
        if not isinstance(item, Struct | Message):
            return
        names = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
        who = tuple(str(getattr(item, name)) for name in _IDENTITIES if name in names)
        here = (*path, type(item).__name__, *who)
        codes = tuple(f"{name}={getattr(item, name)}" for name in names if name.endswith(_FACTS))
        found.append((*here, *codes))
        for name in names:
            walk(getattr(item, name), here)

    walk(value, ())
    return sorted(found, key=str)
