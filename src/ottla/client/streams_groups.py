"""Streams groups (KIP-1071): members and their tasks."""

from __future__ import annotations

from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.protocol.generated.streams_group_describe_response import DescribedGroup


def describe_streams_group(cluster: Cluster, group: str) -> DescribedGroup:
    from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest
    from ottla.protocol.generated.streams_group_describe_response import StreamsGroupDescribeResponse

    answer = cluster.coordinator_call(
        "describeStreamsGroups",
        group,
        StreamsGroupDescribeRequest([group]),
        StreamsGroupDescribeResponse,
        lambda a: a.groups[0].error_code,
    )
    check(answer.groups[0].error_code, answer.groups[0].error_message)
    return answer.groups[0]
