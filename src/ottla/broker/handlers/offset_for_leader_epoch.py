"""OffsetForLeaderEpoch: where an epoch ended, so that a client can find out whether its log was truncated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from ottla.protocol.generated.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane


def handle(context: RequestContext[DataPlane], request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_end(context, topic.topic, item) for item in paced(topic.partitions, 5)]
            )
            for topic in paced(request.topics)
        ]
    )


def _end(context: RequestContext[DataPlane], topic: str, item: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = context.broker.replicas.get(topic, item.partition)
        partition.require_leader(item.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(int(error.code), item.partition)
    epoch, end_offset = partition.end_offset_for_epoch(item.leader_epoch)
    return EpochEndOffset(0, item.partition, epoch, end_offset)
