"""DescribeShareGroupOffsets: where share groups begin on each partition, and how much they have before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.broker.handlers.share_group_heartbeat import serves_share_groups
from ottla.broker.latest_offsets import latest_offset
from ottla.coordinator.decisions import Waiter
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, Uuid
from ottla.model.pace import paced
from ottla.protocol.generated.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.generated.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane
    from ottla.protocol.generated.read_share_group_state_summary_response import PartitionResult

_UNKNOWN = -1


def handle(
    context: RequestContext[SharePlane], request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse | Deferred[DescribeShareGroupOffsetsResponse]:
    starts: list[Callable[[Waiter], None]] = [partial(_describe, context, group) for group in paced(request.groups)]
    return ask_all(starts, _response)


def _response(groups: list[DescribeShareGroupOffsetsResponseGroup]) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _describe(context: RequestContext[SharePlane], group: DescribeShareGroupOffsetsRequestGroup, done: Waiter) -> None:
    group_id = group.group_id
    if not serves_share_groups(context):
        done(_failed(group_id, ErrorCode.UNSUPPORTED_VERSION))
    elif group.topics is None:
        context.broker.groups.share.initialized_partitions(group_id, partial(_describe_all, context, group_id, done))
    else:
        _describe_named(context, group, done)


def _failed(group_id: str, code: ErrorCode, message: str | None = None) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=code, error_message=message)


def _describe_all(
    context: RequestContext[SharePlane], group_id: str, done: Waiter, answer: Mapping[Uuid, Iterable[int]] | KafkaError
) -> None:
    if isinstance(answer, KafkaError):
        done(_failed(group_id, answer.code, answer.code.message))
        return
    topics = context.broker.image.topics_by_id
    partitions_of = {
        topic_id: dict.fromkeys(sorted(partitions))
        for topic_id, partitions in answer.items()
        if topic_id in topics and context.allowed(Operation.DESCRIBE, Resource.TOPIC, topics[topic_id].name)
    }
    _read(context, group_id, partitions_of, [], done)


def _describe_named(
    context: RequestContext[SharePlane], group: DescribeShareGroupOffsetsRequestGroup, done: Waiter
) -> None:
    partitions_of: dict[Uuid, dict[int, None]] = {}  # each partition is asked for once
    unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
    refused: list[DescribeShareGroupOffsetsResponseTopic] = []
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in paced(group.topics or (), 3):
        image = context.broker.image.topics_by_name.get(topic.topic_name)
        if not context.allowed(Operation.DESCRIBE, Resource.TOPIC, topic.topic_name):
            rows = [
                DescribeShareGroupOffsetsResponsePartition(
                    index, _UNKNOWN, lag=_UNKNOWN, error_code=denied, error_message=denied.message
                )
                for index in paced(topic.partitions)
            ]
            refused.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, rows))
        elif image is None:
            rows = [DescribeShareGroupOffsetsResponsePartition(index, _UNKNOWN) for index in paced(topic.partitions)]
            unknown.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, rows))
        else:
            partitions_of.setdefault(image.id, {}).update(dict.fromkeys(topic.partitions))
    _read(context, group.group_id, partitions_of, unknown + refused, done)


def _read(
    context: RequestContext[SharePlane],
    group_id: str,
    partitions_of: dict[Uuid, dict[int, None]],
    others: list[DescribeShareGroupOffsetsResponseTopic],
    done: Waiter,
) -> None:
    places = [(topic_id, index) for topic_id, indexes in paced(partitions_of.items()) for index in paced(indexes)]
    rows: dict[tuple[Uuid, int], DescribeShareGroupOffsetsResponsePartition] = {}
    topics = context.broker.image.topics_by_id

    def add(place: tuple[Uuid, int], row: DescribeShareGroupOffsetsResponsePartition) -> None:
        rows[place] = row
        if len(rows) == len(places):
            finish()

    def finish() -> None:
        described = [
            DescribeShareGroupOffsetsResponseTopic(
                topics[topic_id].name, topic_id, [rows[topic_id, index] for index in paced(indexes)]
            )
            for topic_id, indexes in paced(partitions_of.items())
        ]
        done(DescribeShareGroupOffsetsResponseGroup(group_id, described + others))

    if not places:
        finish()
    for topic_id, index in paced(places, 20):
        read = partial(_on_summary, context, topics[topic_id].name, index, partial(add, (topic_id, index)))
        context.broker.shares.persister.summary(SharePartitionKey(group_id, topic_id, index), read)


def _on_summary(
    context: RequestContext[SharePlane],
    topic: str,
    index: int,
    add: Callable[[DescribeShareGroupOffsetsResponsePartition], None],
    answer: PartitionResult | KafkaError,
) -> None:
    if isinstance(answer, KafkaError):
        add(DescribeShareGroupOffsetsResponsePartition(index, _UNKNOWN, _UNKNOWN, _UNKNOWN))
        return
    if _UNKNOWN in (answer.start_offset, answer.delivery_complete_count):
        add(DescribeShareGroupOffsetsResponsePartition(index, answer.start_offset, answer.leader_epoch, _UNKNOWN))
        return

    def on_latest(latest: int | KafkaError) -> None:
        if isinstance(latest, KafkaError):
            add(
                DescribeShareGroupOffsetsResponsePartition(
                    index, error_code=latest.code, error_message=latest.code.message
                )
            )
            return
        lag = latest - answer.start_offset - answer.delivery_complete_count
        add(DescribeShareGroupOffsetsResponsePartition(index, answer.start_offset, answer.leader_epoch, lag))

    latest_offset(context.broker, topic, index, on_latest)
