"""AlterShareGroupOffsets: set the start offsets of a share group; only while the group has no members."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.broker.handlers.share_group_heartbeat import serves_share_groups
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.generated.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | Deferred[AlterShareGroupOffsetsResponse]:
    if not serves_share_groups(context):
        return _failed(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    if not request.group_id:
        return _failed(KafkaError(ErrorCode.INVALID_GROUP_ID))
    refused: list[AlterShareGroupOffsetsResponseTopic] = []
    topics = context.broker.image.topics_by_name
    allowed = []
    for topic in paced(request.topics, 3):
        if not context.allowed(Operation.READ, Resource.TOPIC, topic.topic_name):
            refused.append(_refused(context, topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic.topic_name not in topics:
            refused.append(_refused(context, topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            allowed.append(topic)
    request.topics = allowed

    def finish(response: AlterShareGroupOffsetsResponse) -> AlterShareGroupOffsetsResponse:
        response.responses = refused + response.responses
        return response

    return ask(partial(context.broker.groups.share.alter, request), finish, _failed)


def _refused(
    context: RequestContext[GroupPlane], topic: AlterShareGroupOffsetsRequestTopic, code: ErrorCode
) -> AlterShareGroupOffsetsResponseTopic:
    rows = [
        AlterShareGroupOffsetsResponsePartition(partition.partition_index, code, code.message)
        for partition in paced(topic.partitions)
    ]
    image = context.broker.image.topics_by_name.get(topic.topic_name)
    if image is None:
        return AlterShareGroupOffsetsResponseTopic(topic.topic_name, partitions=rows)
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, image.id, rows)


def _failed(error: KafkaError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
