"""One group of any kind: its members, what each was given, and the change of its offsets."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.cluster import GROUP, Cluster
from ottla.client.errors import check
from ottla.console.cluster.snapshot import GroupRow, Partition
from ottla.protocol.primitives import DecodeError

_ANY_VERSION_BY_NAME = 9
_FIRST_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    id: str
    client_id: str
    host: str
    instance_id: str = ""
    epoch: int | None = None
    assignment: tuple[str, ...] = ()
    """What it works on, in words: topic and partitions, or tasks."""
    owned: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    state: str
    assignor: str
    epoch: int | None
    members: tuple[MemberRow, ...]


def describe_group(cluster: Cluster, group: GroupRow) -> GroupDetail:
    return _DESCRIBERS.get(group.kind, _classic)(cluster, group.id)


def _classic(cluster: Cluster, group_id: str) -> GroupDetail:
    from ottla.protocol.generated.consumer_protocol_assignment import ConsumerProtocolAssignment
    from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
    from ottla.protocol.generated.describe_groups_response import DescribeGroupsResponse

    answer = cluster.coordinator_call(
        "describeGroups",
        group_id,
        DescribeGroupsRequest([group_id]),
        DescribeGroupsResponse,
        lambda a: a.groups[0].error_code,
    )
    found = answer.groups[0]
    check(found.error_code, found.error_message)
    members = []
    for member in found.members:
        owned: set[Partition] = set()
        if found.protocol_type == "consumer" and member.member_assignment:
            try:
                version = struct.unpack_from(">h", member.member_assignment)[0]
                decoded, _ = ConsumerProtocolAssignment.decode(
                    member.member_assignment, 2, min(version, _FIRST_VERSION)
                )
                owned = {(topic.topic, index) for topic in decoded.assigned_partitions for index in topic.partitions}
            except (DecodeError, struct.error):
                owned = set()  # an assignment in words of its own, as Connect's: nothing to show
        members.append(
            MemberRow(
                id=member.member_id,
                client_id=member.client_id,
                host=member.client_host,
                instance_id=member.group_instance_id or "",
                assignment=in_words(owned),
                owned=frozenset(owned),
            )
        )
    return GroupDetail(state=found.group_state, assignor=found.protocol_data, epoch=None, members=tuple(members))


def _consumer(cluster: Cluster, group_id: str) -> GroupDetail:
    from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from ottla.protocol.generated.consumer_group_describe_response import ConsumerGroupDescribeResponse

    answer = cluster.coordinator_call(
        "consumerGroupDescribe",
        group_id,
        ConsumerGroupDescribeRequest([group_id]),
        ConsumerGroupDescribeResponse,
        lambda a: a.groups[0].error_code,
    )
    found = answer.groups[0]
    check(found.error_code, found.error_message)
    members = []
    for member in found.members:
        owned = {(t.topic_name, index) for t in member.assignment.topic_partitions for index in t.partitions}
        members.append(
            MemberRow(
                id=member.member_id,
                client_id=member.client_id,
                host=member.client_host,
                instance_id=member.instance_id or "",
                epoch=member.member_epoch,
                assignment=in_words(owned),
                owned=frozenset(owned),
            )
        )
    return GroupDetail(
        state=found.group_state, assignor=found.assignor_name, epoch=found.group_epoch, members=tuple(members)
    )


def _share(cluster: Cluster, group_id: str) -> GroupDetail:
    from ottla.protocol.generated.share_group_describe_request import ShareGroupDescribeRequest
    from ottla.protocol.generated.share_group_describe_response import ShareGroupDescribeResponse

    answer = cluster.coordinator_call(
        "shareGroupDescribe",
        group_id,
        ShareGroupDescribeRequest([group_id]),
        ShareGroupDescribeResponse,
        lambda a: a.groups[0].error_code,
    )
    found = answer.groups[0]
    check(found.error_code, found.error_message)
    members = tuple(
        MemberRow(
            id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            epoch=member.member_epoch,
            assignment=in_words(
                {(t.topic_name, index) for t in member.assignment.topic_partitions for index in t.partitions}
            ),
        )
        for member in found.members
    )
    return GroupDetail(state=found.group_state, assignor=found.assignor_name, epoch=found.group_epoch, members=members)


def _streams(cluster: Cluster, group_id: str) -> GroupDetail:
    from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest
    from ottla.protocol.generated.streams_group_describe_response import StreamsGroupDescribeResponse

    answer = cluster.coordinator_call(
        "streamsGroupDescribe",
        group_id,
        StreamsGroupDescribeRequest([group_id]),
        StreamsGroupDescribeResponse,
        lambda a: a.groups[0].error_code,
    )
    found = answer.groups[0]
    check(found.error_code, found.error_message)
    members = tuple(
        MemberRow(
            id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            instance_id=member.instance_id or "",
            epoch=member.member_epoch,
            assignment=tuple(
                f"task {task.subtopology_id}: {', '.join(map(str, sorted(task.partitions)))}"
                for task in member.assignment.active_tasks
            ),
        )
        for member in found.members
    )
    return GroupDetail(state=found.group_state, assignor="streams", epoch=found.group_epoch, members=members)


_DESCRIBERS = {"classic": _classic, "consumer": _consumer, "share": _share, "streams": _streams}


def in_words(owned: set[Partition]) -> tuple[str, ...]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(owned):
        topics.setdefault(topic, []).append(index)
    return tuple(f"{topic}: {', '.join(map(str, indexes))}" for topic, indexes in topics.items())


def share_offsets(cluster: Cluster, group_id: str) -> dict[Partition, tuple[int, int]]:
    """Partition -> (start offset, lag; -1 where the broker does not say)."""
    from ottla.protocol.generated.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )
    from ottla.protocol.generated.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse

    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group_id, None)])
    answer = cluster.coordinator_call(
        "describeShareGroupOffsets",
        group_id,
        request,
        DescribeShareGroupOffsetsResponse,
        lambda a: a.groups[0].error_code,
    )
    check(answer.groups[0].error_code, answer.groups[0].error_message)
    return {
        (topic.topic_name, row.partition_index): (row.start_offset, row.lag)
        for topic in answer.groups[0].topics
        for row in topic.partitions
        if not row.error_code
    }


def set_offsets(cluster: Cluster, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Commit these offsets for a group without members; the broker refuses while it has any."""
    from ottla.protocol.generated.offset_commit_request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from ottla.protocol.generated.offset_commit_response import OffsetCommitResponse

    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, index), offset in offsets.items():
        row = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, partitions=[]))
        row.partitions.append(OffsetCommitRequestPartition(index, offset, -1, ""))
    request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
    answer = cluster.coordinator_call(
        "alterConsumerGroupOffsets",
        group_id,
        request,
        OffsetCommitResponse,
        lambda a: next((p.error_code for t in a.topics for p in t.partitions if p.error_code), 0),
        kind=GROUP,
        highest=_ANY_VERSION_BY_NAME,
    )
    for topic_answer in answer.topics:
        for result in topic_answer.partitions:
            check(result.error_code)


def delete_group(cluster: Cluster, group_id: str) -> None:
    from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
    from ottla.protocol.generated.delete_groups_response import DeleteGroupsResponse

    answer = cluster.coordinator_call(
        "deleteGroups",
        group_id,
        DeleteGroupsRequest([group_id]),
        DeleteGroupsResponse,
        lambda a: a.results[0].error_code,
    )
    check(answer.results[0].error_code)
