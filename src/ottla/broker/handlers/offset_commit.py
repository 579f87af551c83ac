"""OffsetCommit: what a group has read. From v10 on topics come by id; records keep both name and id."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, Uuid
from ottla.model.pace import paced
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

_TOPIC_IDS_FROM = 10


def handle(
    context: RequestContext[GroupPlane], request: OffsetCommitRequest
) -> OffsetCommitResponse | Deferred[OffsetCommitResponse]:
    accepted, refused = _split(context, request)
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted

    def answer(response: OffsetCommitResponse) -> OffsetCommitResponse:
        _merge(response, refused)
        return response

    return ask(
        partial(context.broker.groups.commit_offsets, context.version, request),
        answer,
        lambda error: answer(_failed(request, error)),
    )


def _split(
    context: RequestContext[GroupPlane], request: OffsetCommitRequest
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """The partitions that exist, topic id and name filled in, and the answers for those that do not."""
    accepted, refused = [], []
    by_id = context.version >= _TOPIC_IDS_FROM
    for topic in paced(request.topics):
        image = context.broker.image
        topic_image = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
        if topic_image is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refused(topic.name, topic.topic_id, topic.partitions, code))
            continue
        exists = [item for item in paced(topic.partitions) if item.partition_index in topic_image.partitions]
        missing = [item for item in paced(topic.partitions) if item.partition_index not in topic_image.partitions]
        if exists:
            accepted.append(OffsetCommitRequestTopic(topic_image.name, topic_image.id, exists))
        if missing:
            refused.append(_refused(topic_image.name, topic_image.id, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return accepted, refused


def _refused(
    name: str, topic_id: Uuid, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    answers = [OffsetCommitResponsePartition(item.partition_index, code) for item in paced(partitions)]
    return OffsetCommitResponseTopic(name, topic_id, answers)


def _failed(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    topics = [_refused(topic.name, topic.topic_id, topic.partitions, error.code) for topic in paced(request.topics)]
    return OffsetCommitResponse(topics=topics)


def _merge(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> None:
    """One entry for each topic, the refused partitions first."""
    if not refused:
        return
    merged = {topic.topic_id if topic.topic_id != ZERO_UUID else topic.name: topic for topic in paced(refused)}
    topics = list(refused)
    for topic in paced(response.topics):
        same = merged.setdefault(topic.topic_id, topic)
        if same is topic:
            topics.append(topic)
        else:
            same.partitions += topic.partitions
    response.topics = topics
