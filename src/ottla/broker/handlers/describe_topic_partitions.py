"""DescribeTopicPartitions: topics in order of their names, a bounded number of partitions at a time (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.handlers.metadata import TOPIC_OPERATIONS
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.model.topic_names import INTERNAL_TOPICS, is_topic_name
from ottla.protocol.generated.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from ottla.protocol.generated.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def handle(
    context: RequestContext[NodePlane], request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = context.broker.image
    cursor = request.cursor
    fetch_all = not request.topics
    names = sorted(image.topics_by_name) if fetch_all else sorted({topic.name for topic in paced(request.topics)})
    if cursor is not None:
        names = [name for name in paced(names) if name >= cursor.topic_name]
        if cursor.partition_index < 0 or (not fetch_all and cursor.topic_name not in names):
            return _refused(request, ErrorCode.INVALID_REQUEST)
    elif "" in names:
        # Kafka takes it for the topic of the cursor, and there is none.
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    limit = max(min(context.broker.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in paced(names, 3):
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        topic = image.topics_by_name.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        if limit <= 0:
            response.next_cursor = Cursor(name, start)
            break
        indexes = [index for index in sorted(topic.partitions) if index >= start]
        response.topics.append(_topic(image, topic, indexes[:limit]))
        if len(indexes) > limit:
            response.next_cursor = Cursor(name, indexes[limit])
            break
        limit -= len(indexes)
    return response


def _refused(request: DescribeTopicPartitionsRequest, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    """The whole request: its cursor points nowhere, or it asks for a topic without a name."""
    topics = [DescribeTopicPartitionsResponseTopic(int(code), topic.name) for topic in paced(request.topics)]
    return DescribeTopicPartitionsResponse(topics=topics)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        int(code), name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _topic(image: MetadataImage, topic: TopicImage, indexes: list[int]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        0,
        topic.name,
        topic.id,
        topic.name in INTERNAL_TOPICS,
        [_partition(image, index, topic.partitions[index]) for index in paced(indexes, 3)],
        TOPIC_OPERATIONS,
    )


def _partition(
    image: MetadataImage, index: int, registration: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    brokers = image.brokers
    return DescribeTopicPartitionsResponsePartition(
        0 if registration.leader in brokers else int(ErrorCode.LEADER_NOT_AVAILABLE),
        index,
        registration.leader,
        registration.leader_epoch,
        list(registration.replicas),
        list(registration.isr),
        list(registration.elr),
        list(registration.last_known_elr),
        [node for node in registration.replicas if node not in brokers or brokers[node].fenced],
    )
