"""OffsetFetch: where groups go on reading. One group up to v7, several from v8, topics by id from v10."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID
from ottla.model.pace import paced
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.generated.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

_GROUP_ERROR_FROM = 2
_SEVERAL_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10
_NO_OFFSET = -1
_OFFSETS_PER_EVENT = 1000
GroupOffsets: TypeAlias = OffsetFetchResponseGroup | KafkaError


def handle(
    context: RequestContext[GroupPlane], request: OffsetFetchRequest
) -> OffsetFetchResponse | Deferred[OffsetFetchResponse]:
    groups = request.groups if context.version >= _SEVERAL_GROUPS_FROM else [_as_group(request)]
    refused = [_resolve(context, group) for group in paced(groups)]
    fetch = partial(context.broker.groups.fetch_offsets, require_stable=request.require_stable)
    parts = [(number, part) for number, group in enumerate(paced(groups)) for part in paced(_parts(group))]

    def finish(answers: list[GroupOffsets]) -> OffsetFetchResponse:
        merged: dict[int, GroupOffsets] = {}
        for (number, part), answer in zip(paced(parts), answers, strict=True):
            merged[number] = _merged(merged.get(number), answer, part)
        offsets = [_group(context, *row) for row in zip(paced(groups), merged.values(), refused, strict=True)]
        if context.version >= _SEVERAL_GROUPS_FROM:
            return OffsetFetchResponse(groups=offsets)
        return _as_single(context.version, offsets[0])

    return ask_all([partial(fetch, part.group) for _, part in paced(parts)], finish)


class _Part(NamedTuple):
    """What one event of the coordinator looks up."""

    group: OffsetFetchRequestGroup
    goes_on: bool = False
    """Whether its first topic is the last one of the part before."""


def _parts(group: OffsetFetchRequestGroup) -> list[_Part]:
    """An event is not interrupted, so each looks up a bounded number of offsets."""
    parts: list[_Part] = []
    room = 0
    for topic in paced(group.topics or ()):
        indexes = topic.partition_indexes
        at = 0
        while at == 0 or at < len(indexes):
            if room <= 0:
                part = OffsetFetchRequestGroup(group.group_id, group.member_id, group.member_epoch, [])
                parts.append(_Part(part, goes_on=at > 0))
                room = _OFFSETS_PER_EVENT
            piece = indexes[at : at + room]
            topics = parts[-1].group.topics
            if topics is not None:
                topics.append(OffsetFetchRequestTopics(topic.name, topic.topic_id, piece))
            at += max(len(piece), 1)
            room -= len(piece) + 1
    return parts or [_Part(group)]


def _merged(before: GroupOffsets | None, answer: GroupOffsets, part: _Part) -> GroupOffsets:
    """Of a group's parts the first error counts for all."""
    if before is None or isinstance(before, KafkaError):
        return answer if before is None else before
    if isinstance(answer, KafkaError):
        return answer
    topics = answer.topics
    if part.goes_on:
        before.topics[-1].partitions += topics[0].partitions
        topics = topics[1:]
    before.topics += topics
    return before


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(t.name, ZERO_UUID, t.partition_indexes) for t in paced(request.topics)]
    return OffsetFetchRequestGroup(request.group_id, topics=topics)


def _resolve(context: RequestContext[GroupPlane], group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Set the names of topics that come by id; returns the answers for unknown ids."""
    if context.version < _TOPIC_IDS_FROM or group.topics is None:
        return []
    existing, refused = [], []
    for topic in paced(group.topics):
        image = context.broker.image.topics_by_id.get(topic.topic_id)
        if image is None:
            refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = image.name
            existing.append(topic)
    group.topics = existing
    return refused


def _group(
    context: RequestContext[GroupPlane],
    group: OffsetFetchRequestGroup,
    answer: GroupOffsets,
    refused: list[OffsetFetchResponseTopics],
) -> OffsetFetchResponseGroup:
    if isinstance(answer, KafkaError):
        return _failed(context.version, group, answer)
    if group.topics is None and context.version >= _TOPIC_IDS_FROM:
        answer.topics = [topic for topic in paced(answer.topics) if _give_id(context, topic)]
    answer.topics += refused
    return answer


def _give_id(context: RequestContext[GroupPlane], topic: OffsetFetchResponseTopics) -> bool:
    """By id there is no way to name a topic that does not exist any more."""
    image = context.broker.image.topics_by_name.get(topic.name)
    if image is None:
        return False
    topic.topic_id = image.id
    return True


def _failed(version: int, group: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
    if version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponseGroup(group.group_id, error_code=error.code)
    return OffsetFetchResponseGroup(
        group.group_id, [_refused(topic, error.code) for topic in paced(group.topics or ())]
    )


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [OffsetFetchResponsePartitions(i, _NO_OFFSET, -1, "", code) for i in paced(topic.partition_indexes)]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _as_single(version: int, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    item.partition_index,
                    item.committed_offset,
                    item.committed_leader_epoch,
                    item.metadata,
                    item.error_code,
                )
                for item in paced(topic.partitions)
            ],
        )
        for topic in paced(group.topics)
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code if version >= _GROUP_ERROR_FROM else 0)
