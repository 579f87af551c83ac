"""Share groups (KIP-932): members, start offsets, and changes to these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.cluster import Cluster
from ottla.client.errors import check, error_of
from ottla.model.errors import KafkaError
from ottla.protocol.generated.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponsePartition
from ottla.protocol.generated.share_group_describe_response import DescribedGroup


def describe_share_group(cluster: Cluster, group: str) -> DescribedGroup:
    from ottla.protocol.generated.share_group_describe_request import ShareGroupDescribeRequest
    from ottla.protocol.generated.share_group_describe_response import ShareGroupDescribeResponse

    answer = cluster.coordinator_call(
        "describeShareGroups",
        group,
        ShareGroupDescribeRequest([group]),
        ShareGroupDescribeResponse,
        lambda a: a.groups[0].error_code,
    )
    check(answer.groups[0].error_code, answer.groups[0].error_message)
    return answer.groups[0]


def share_offsets(cluster: Cluster, group: str) -> dict[tuple[str, int], DescribeShareGroupOffsetsResponsePartition]:
    from ottla.protocol.generated.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )
    from ottla.protocol.generated.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse

    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    answer = cluster.coordinator_call(
        "describeShareGroupOffsets",
        group,
        request,
        DescribeShareGroupOffsetsResponse,
        lambda a: a.groups[0].error_code,
    )
    check(answer.groups[0].error_code, answer.groups[0].error_message)
    return {
        (topic.topic_name, row.partition_index): row
        for topic in answer.groups[0].topics
        for row in topic.partitions
        if not row.error_code
    }


def alter_share_offsets(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    from ottla.protocol.generated.alter_share_group_offsets_request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
    )
    from ottla.protocol.generated.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse

    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(AlterShareGroupOffsetsRequestPartition(partition, offset))
    rows = [AlterShareGroupOffsetsRequestTopic(name, listed) for name, listed in topics.items()]
    answer = cluster.coordinator_call(
        "alterShareGroupOffsets",
        group,
        AlterShareGroupOffsetsRequest(group, rows),
        AlterShareGroupOffsetsResponse,
        lambda a: a.error_code,
    )
    check(answer.error_code, answer.error_message)


def delete_share_offsets(cluster: Cluster, group: str, topics: Iterable[str]) -> dict[str, KafkaError | None]:
    from ottla.protocol.generated.delete_share_group_offsets_request import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
    )
    from ottla.protocol.generated.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse

    request = DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(name) for name in topics])
    answer = cluster.coordinator_call(
        "deleteShareGroupOffsets", group, request, DeleteShareGroupOffsetsResponse, lambda a: a.error_code
    )
    check(answer.error_code, answer.error_message)
    return {
        row.topic_name: error_of(row.error_code, row.error_message) if row.error_code else None
        for row in answer.responses
    }
