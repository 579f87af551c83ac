"""DeleteShareGroupOffsets: remove the state of some topics from a share group; only while the group has no members."""

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
from ottla.protocol.generated.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from ottla.protocol.generated.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Deferred[DeleteShareGroupOffsetsResponse]:
    if not serves_share_groups(context):
        return _failed(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    if not request.group_id:
        return _failed(KafkaError(ErrorCode.INVALID_GROUP_ID))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    names = {topic.topic_name for topic in paced(request.topics)}
    allowed = {name for name in paced(names, 3) if context.allowed(Operation.READ, Resource.TOPIC, name)}
    refused = [
        DeleteShareGroupOffsetsResponseTopic(topic.topic_name, error_code=denied, error_message=denied.message)
        for topic in paced(request.topics)
        if topic.topic_name not in allowed
    ]
    request.topics = [topic for topic in paced(request.topics) if topic.topic_name in allowed]

    def finish(response: DeleteShareGroupOffsetsResponse) -> DeleteShareGroupOffsetsResponse:
        response.responses = refused + response.responses
        return response

    return ask(partial(context.broker.groups.share.delete, request), finish, _failed)


def _failed(error: KafkaError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
