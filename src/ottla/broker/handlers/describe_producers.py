"""DescribeProducers: the idempotent and transactional producers that a partition remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import longs_in_java_order
from ottla.model.pace import paced
from ottla.model.topic_names import check_topic_name
from ottla.protocol.generated.describe_producers_request import DescribeProducersRequest
from ottla.protocol.generated.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane


def handle(context: RequestContext[DataPlane], request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name, [_partition(context, topic.name, index) for index in paced(topic.partition_indexes, 10)]
            )
            for topic in paced(request.topics)
        ]
    )


def _partition(context: RequestContext[DataPlane], topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        if topic not in context.broker.image.topics_by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as error:
        return PartitionResponse(index, int(error.code), error.message)
    try:
        partition = context.broker.replicas.get(topic, index)
        partition.require_leader()
    except KafkaError as error:
        return PartitionResponse(index, int(error.code), None)
    active = {producer[0]: ProducerState(*producer) for producer in paced(list(partition.log.producers.active()))}
    return PartitionResponse(index, 0, None, [active[producer_id] for producer_id in longs_in_java_order(active)])
