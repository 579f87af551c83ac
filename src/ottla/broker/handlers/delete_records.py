"""DeleteRecords: move a partition's log start offset up."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.delete_records_request import DeleteRecordsRequest
from ottla.protocol.generated.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            try:
                low = _delete(context, topic.name, item.partition_index, item.offset)
                partitions.append(DeleteRecordsPartitionResult(item.partition_index, low, 0))
            except KafkaError as error:
                partitions.append(DeleteRecordsPartitionResult(item.partition_index, -1, int(error.code)))
        topics.append(DeleteRecordsTopicResult(topic.name, partitions))
    return DeleteRecordsResponse(topics=topics)


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> int:
    partition = context.broker.replicas.get(topic, index)
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition.delete_records_before(offset)
