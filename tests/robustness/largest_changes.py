"""The largest changes that succeed: each request changes as much as a request may, in an order in which all of them work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.generated import (
    alter_client_quotas_request as quotas,
)
from ottla.protocol.generated import (
    alter_partition_reassignments_request as reassignments,
)
from ottla.protocol.generated import (
    create_acls_request as acls,
)
from ottla.protocol.generated import (
    create_partitions_request as growth,
)
from ottla.protocol.generated import (
    delete_acls_request as acl_filters,
)
from ottla.protocol.generated import (
    delete_records_request as deletions,
)
from ottla.protocol.generated import (
    delete_topics_request as topic_deletions,
)
from ottla.protocol.generated import (
    elect_leaders_request as elections,
)
from ottla.protocol.generated import (
    incremental_alter_configs_request as configs,
)
from ottla.protocol.generated import (
    list_offsets_request as offsets,
)
from ottla.protocol.generated import (
    offset_commit_request as commits,
)
from ottla.protocol.generated import (
    offset_delete_request as offset_deletions,
)
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest

WIDE = "wide"
"""One topic with as many partitions as one request may create."""
_TIMEOUT_MS = 60_000
_TOPIC, _LITERAL, _ALLOW, _READ = 2, 3, 3, 3


class Change(NamedTuple):
    label: str
    request: Any
    version: int | None = None


def largest_changes(count: int, replicas: list[int], *, with_acls: bool) -> Iterator[Change]:
    """With about `count` elements each. Every request counts on the requests before."""
    topics = [f"changed-{index}" for index in range(count // 4)]
    indexes = range(count)
    new = [CreatableTopic(name, 3, 1) for name in topics]
    yield Change("CreateTopics, many", CreateTopicsRequest(new, timeout_ms=_TIMEOUT_MS))
    yield Change(
        "CreateTopics, one wide topic", CreateTopicsRequest([CreatableTopic(WIDE, count, 1)], timeout_ms=_TIMEOUT_MS)
    )
    resources = [
        configs.AlterConfigsResource(_TOPIC, name, [configs.AlterableConfig("retention.ms", 0, "3600000")])
        for name in topics
    ]
    yield Change("IncrementalAlterConfigs", configs.IncrementalAlterConfigsRequest(resources))
    grown = [growth.CreatePartitionsTopic(name, 4, None) for name in topics]
    yield Change("CreatePartitions", growth.CreatePartitionsRequest(grown, timeout_ms=_TIMEOUT_MS))
    moved = [reassignments.ReassignablePartition(index, replicas) for index in indexes]
    yield Change(
        "AlterPartitionReassignments",
        reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=_TIMEOUT_MS, topics=[reassignments.ReassignableTopic(WIDE, moved)]
        ),
    )
    elected = elections.TopicPartitions(WIDE, list(indexes))
    yield Change("ElectLeaders", elections.ElectLeadersRequest(0, [elected], _TIMEOUT_MS))
    asked = [offsets.ListOffsetsPartition(index, timestamp=5) for index in indexes]
    yield Change("ListOffsets by time", offsets.ListOffsetsRequest(topics=[offsets.ListOffsetsTopic(WIDE, asked)]))
    cut = [deletions.DeleteRecordsPartition(index, 0) for index in indexes]
    yield Change(
        "DeleteRecords",
        deletions.DeleteRecordsRequest([deletions.DeleteRecordsTopic(WIDE, cut)], timeout_ms=_TIMEOUT_MS),
    )
    committed = [commits.OffsetCommitRequestPartition(index, 0) for index in indexes]
    commit = commits.OffsetCommitRequest(
        "commits", topics=[commits.OffsetCommitRequestTopic(WIDE, partitions=committed)]
    )
    yield Change("OffsetCommit", commit, 9)
    removed = [offset_deletions.OffsetDeleteRequestPartition(index) for index in indexes]
    yield Change(
        "OffsetDelete",
        offset_deletions.OffsetDeleteRequest("commits", [offset_deletions.OffsetDeleteRequestTopic(WIDE, removed)]),
    )
    for member in ("first", "second"):
        join = ConsumerGroupHeartbeatRequest(
            "group", member, 0, rebalance_timeout_ms=30_000, subscribed_topic_names=[WIDE, *topics], topic_partitions=[]
        )
        yield Change(f"ConsumerGroupHeartbeat of the {member} member", join)
    for remove in (False, True):
        limits = [
            quotas.EntryData(
                [quotas.EntityData("user", f"user-{index}")], [quotas.OpData("producer_byte_rate", 1000.0, remove)]
            )
            for index in range(count // 3)
        ]
        verb = "remove" if remove else "set"
        yield Change(f"AlterClientQuotas, {verb}", quotas.AlterClientQuotasRequest(limits))
    if with_acls:
        rules = [
            acls.AclCreation(_TOPIC, f"topic-{index}", _LITERAL, "User:alice", "*", _READ, _ALLOW) for index in indexes
        ]
        yield Change("CreateAcls", acls.CreateAclsRequest(rules))
        filters = [
            acl_filters.DeleteAclsFilter(_TOPIC, f"topic-{index}", _LITERAL, None, None, 1, 1)
            for index in range(min(count, 1000))
        ]
        yield Change("DeleteAcls", acl_filters.DeleteAclsRequest(filters))
    deleted = [topic_deletions.DeleteTopicState(name) for name in topics]
    yield Change("DeleteTopics, many", topic_deletions.DeleteTopicsRequest(deleted, timeout_ms=_TIMEOUT_MS))
    wide = [topic_deletions.DeleteTopicState(WIDE)]
    yield Change("DeleteTopics, one wide topic", topic_deletions.DeleteTopicsRequest(wide, timeout_ms=_TIMEOUT_MS))


def error_codes(value: Any) -> set[int]:
    """All error codes anywhere in a response."""
    codes: set[int] = set()
    for name in getattr(value, "__slots__", ()):
        field = getattr(value, name)
        if name == "error_code":
            codes.add(field)
        for element in field if isinstance(field, list) else [field]:
            codes |= error_codes(element)
    return codes
