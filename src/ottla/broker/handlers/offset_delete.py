"""OffsetDelete: forget a group's offsets for topics that it does not read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.generated.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    existing, refused = _split(context, request)

    def answer(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        _merge(response, refused)
        return response

    return ask(
        partial(context.broker.groups.delete_offsets, OffsetDeleteRequest(request.group_id, existing)),
        answer,
        lambda error: OffsetDeleteResponse(error_code=error.code),
    )


def _split(
    context: RequestContext[GroupPlane], request: OffsetDeleteRequest
) -> tuple[list[OffsetDeleteRequestTopic], list[OffsetDeleteResponseTopic]]:
    """The partitions that exist, and the answers for those that do not."""
    existing, refused = [], []
    image = context.broker.image
    for topic in paced(request.topics):
        exists: list[OffsetDeleteRequestPartition] = []
        missing: list[OffsetDeleteResponsePartition] = []
        for item in paced(topic.partitions, 3):
            if image.partition(topic.name, item.partition_index) is not None:
                exists.append(item)
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                missing.append(OffsetDeleteResponsePartition(item.partition_index, code))
        if exists:
            existing.append(OffsetDeleteRequestTopic(topic.name, exists))
        if missing:
            refused.append(OffsetDeleteResponseTopic(topic.name, missing))
    return existing, refused


def _merge(response: OffsetDeleteResponse, refused: list[OffsetDeleteResponseTopic]) -> None:
    """One entry for each topic, the refused partitions first."""
    by_name = {topic.name: topic for topic in paced(refused)}
    topics = list(refused)
    for topic in paced(response.topics):
        same = by_name.setdefault(topic.name, topic)
        if same is topic:
            topics.append(topic)
        else:
            same.partitions += topic.partitions
    response.topics = topics
