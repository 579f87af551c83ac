"""Groups: which there are, who is in them, and what they have committed; classic and consumer protocol alike.

A group is described with ConsumerGroupDescribe. If the answer is that the group is of a different kind, or the broker
does not support the call, then DescribeGroups follows, as in Kafka's admin client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import UnsupportedVersion, check, error_of
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.classic_assignment import partitions_of_assignment
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.generated.list_groups_response import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.protocol.generated.consumer_group_describe_response import Assignment

Partition = tuple[str, int]
Owned = dict[str, frozenset[Partition]]
"""By group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[Partition, ...]
    target: tuple[Partition, ...] | None = None
    epoch: int | None = None
    upgraded: bool | None = None
    """Whether the member uses the consumer protocol; None in a classic group, where no member does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    kind: str
    """"Classic" or "Consumer"."""
    assignor: str
    coordinator: tuple[str, int, int]
    """Host, port and node id."""
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    target_epoch: int | None = None


def list_groups(
    cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = (), call: str = "listGroups"
) -> list[ListedGroup]:
    """Of every broker."""
    groups: dict[str, ListedGroup] = {}
    for broker in cluster.describe(call).brokers:
        request = ListGroupsRequest(list(states), list(types))

        def attempt(
            deadline: float, node: int = broker.node_id, request: ListGroupsRequest = request
        ) -> ListGroupsResponse:
            answer = cluster.node(node, deadline).call(request, ListGroupsResponse, deadline)
            check(answer.error_code)
            return answer

        for group in cluster.retried(call, attempt).groups:
            groups.setdefault(group.group_id, group)
    return [groups[name] for name in hash_order(groups)]


def hash_order(names: Iterable[str]) -> list[str]:
    """The order in which Java's HashMap gives names back: what its tools print from one stands in that order."""
    unique_names = list(dict.fromkeys(names))
    size = 16
    while len(unique_names) > size * 3 // 4:
        size *= 2

    def bucket(name: str) -> int:
        code = 0
        for unit in map(ord, name):
            code = (code * 31 + unit) & 0xFFFFFFFF
        return (code ^ code >> 16) & (size - 1)

    return sorted(unique_names, key=bucket)


def consumer_groups(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """Those that consumers use: the consumer protocol's and the classic ones with its protocol type or none."""
    group_types = [kind for kind in types if kind in {"classic", "consumer"}] or ["classic", "consumer"]
    return [
        group
        for group in list_groups(cluster, states, group_types, "listConsumerGroups")
        if group.protocol_type in {"", "consumer"} and group.group_type.lower() in {"", "classic", "consumer"}
    ]


def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """KafkaError (GROUP_ID_NOT_FOUND and others) where there is nothing to describe."""
    try:
        return _describe_consumer(cluster, group_id)
    except KafkaError as reason:
        if reason.code not in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}:
            raise
    except UnsupportedVersion:
        pass
    return _describe_classic(cluster, group_id)


def owned_partitions(cluster: Cluster, node: int, consumer: Sequence[str], classic: Sequence[str]) -> Owned:
    """The partitions that members own, of many groups of one coordinator; without the groups that it refuses."""
    from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from ottla.protocol.generated.consumer_group_describe_response import ConsumerGroupDescribeResponse
    from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
    from ottla.protocol.generated.describe_groups_response import DescribeGroupsResponse

    owned: Owned = {}
    if consumer:
        request = ConsumerGroupDescribeRequest(list(consumer))
        for row in cluster.node_call("describeConsumerGroups", node, request, ConsumerGroupDescribeResponse).groups:
            if not row.error_code:
                assignments = [_named_partitions(member.assignment) for member in row.members]
                owned[row.group_id] = frozenset(place for places in assignments for place in places)
    if classic:
        old_request = DescribeGroupsRequest(list(classic))
        for old in cluster.node_call("describeGroups", node, old_request, DescribeGroupsResponse).groups:
            if not old.error_code and old.protocol_type in {"", "consumer"}:
                assignments = [partitions_of_assignment(bytes(member.member_assignment)) for member in old.members]
                owned[old.group_id] = frozenset(place for places in assignments for place in places)
    return owned


def _named_partitions(assignment: Assignment) -> tuple[Partition, ...]:
    return tuple((topic.topic_name, row) for topic in assignment.topic_partitions for row in topic.partitions)


def coordinator_of(cluster: Cluster, group_id: str, kind: int = 0) -> tuple[str, int, int]:
    return cluster.retried("findCoordinator", lambda deadline: cluster.coordinator(group_id, kind, deadline))


def _describe_consumer(cluster: Cluster, group_id: str) -> GroupDescription:
    from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from ottla.protocol.generated.consumer_group_describe_response import ConsumerGroupDescribeResponse

    answer = cluster.coordinator_call(
        "describeConsumerGroups",
        group_id,
        ConsumerGroupDescribeRequest([group_id]),
        ConsumerGroupDescribeResponse,
        lambda a: a.groups[0].error_code,
    )
    group = answer.groups[0]
    check(group.error_code, group.error_message)

    return GroupDescription(
        group_id=group_id,
        state=group.group_state,
        kind="Consumer",
        assignor=group.assignor_name,
        coordinator=coordinator_of(cluster, group_id),
        group_epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_named_partitions(member.assignment),
                target=_named_partitions(member.target_assignment),
                epoch=member.member_epoch,
                upgraded={0: False, 1: True}.get(member.member_type),
            )
            for member in group.members
        ),
    )


def _describe_classic(cluster: Cluster, group_id: str) -> GroupDescription:
    from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
    from ottla.protocol.generated.describe_groups_response import DescribeGroupsResponse

    answer = cluster.coordinator_call(
        "describeConsumerGroups",
        group_id,
        DescribeGroupsRequest([group_id]),
        DescribeGroupsResponse,
        lambda a: a.groups[0].error_code,
    )
    group = answer.groups[0]
    check(group.error_code, group.error_message)
    return GroupDescription(
        group_id=group_id,
        state=group.group_state,
        kind="Classic",
        assignor=group.protocol_data,
        coordinator=coordinator_of(cluster, group_id),
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=partitions_of_assignment(bytes(member.member_assignment)),
            )
            for member in group.members
        ),
    )


class Committed(NamedTuple):
    offset: int
    leader_epoch: int | None


def committed_offsets(cluster: Cluster, group_id: str) -> dict[Partition, int]:
    """Without the leader epochs that stand beside them."""
    return {where: position.offset for where, position in committed_positions(cluster, group_id).items()}


def committed_positions(cluster: Cluster, group_id: str) -> dict[Partition, Committed]:
    """Every committed offset of a group; empty for a group that has none or does not exist."""
    from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse

    request = OffsetFetchRequest(group_id, None, [OffsetFetchRequestGroup(group_id, topics=None)], require_stable=False)
    answer = cluster.coordinator_call(
        "listConsumerGroupOffsets",
        group_id,
        request,
        OffsetFetchResponse,
        lambda a: a.groups[0].error_code if a.groups else a.error_code,
        highest=9,  # from 10 on topics have ids instead of names
    )
    check(answer.groups[0].error_code if answer.groups else answer.error_code)
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return {
        (topic.name, row.partition_index): Committed(
            row.committed_offset, row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None
        )
        for topic in topics
        for row in topic.partitions
        if not row.error_code and row.committed_offset >= 0
    }


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """As an admin: only a group without members takes it."""
    from ottla.protocol.generated.offset_commit_request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from ottla.protocol.generated.offset_commit_response import OffsetCommitResponse

    if not offsets:
        return
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, -1, ""))
    rows = [OffsetCommitRequestTopic(name, partitions=partitions) for name, partitions in topics.items()]
    answer = cluster.coordinator_call(
        "alterConsumerGroupOffsets",
        group_id,
        OffsetCommitRequest(group_id, -1, "", None, -1, rows),
        OffsetCommitResponse,
        lambda a: a.topics[0].partitions[0].error_code,
        highest=9,
    )
    for answered in answer.topics:
        for row in answered.partitions:
            check(row.error_code)


def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition]
) -> dict[Partition, KafkaError | None]:
    """KafkaError when the whole group refuses; else each partition's own answer."""
    from ottla.protocol.generated.offset_delete_request import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )
    from ottla.protocol.generated.offset_delete_response import OffsetDeleteResponse

    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition))
    request = OffsetDeleteRequest(group_id, [OffsetDeleteRequestTopic(name, rows) for name, rows in topics.items()])
    answer = cluster.coordinator_call("offsetDelete", group_id, request, OffsetDeleteResponse, lambda a: a.error_code)
    check(answer.error_code)
    return {
        (topic.name, row.partition_index): error_of(row.error_code) if row.error_code else None
        for topic in answer.topics
        for row in topic.partitions
    }


def delete_group(cluster: Cluster, group_id: str) -> None:
    from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
    from ottla.protocol.generated.delete_groups_response import DeleteGroupsResponse

    answer = cluster.coordinator_call(
        "deleteConsumerGroups",
        group_id,
        DeleteGroupsRequest([group_id]),
        DeleteGroupsResponse,
        lambda a: a.results[0].error_code,
    )
    check(answer.results[0].error_code)
