"""DescribeLogDirs: the log directories of this node and the size of each replica in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.log.log_dirs_description import LogDirDescription
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.pace import paced
from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.protocol.generated.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane


def handle(context: RequestContext[DataPlane], request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    selected: set[TopicPartition] | None = None
    if request.topics is not None:
        selected = {
            TopicPartition(topic.topic, index) for topic in paced(request.topics) for index in paced(topic.partitions)
        }
    return DescribeLogDirsResponse(
        results=[_result(described, selected) for described in context.broker.logs.describe()]
    )


def _result(described: LogDirDescription, selected: set[TopicPartition] | None) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for replica in paced(described.replicas, 2):
        if selected is None or replica.partition in selected:
            topics.setdefault(replica.partition.topic, []).append(
                DescribeLogDirsPartition(
                    replica.partition.partition, replica.size_bytes, replica.offset_lag, replica.is_future
                )
            )
    return DescribeLogDirsResult(
        0 if described.error is ErrorCode.NONE else int(described.error),
        described.path,
        [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()],
        described.total_bytes,
        described.usable_bytes,
        described.cordoned,
    )
