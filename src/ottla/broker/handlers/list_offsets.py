"""ListOffsets: earliest, latest, by timestamp, the largest timestamp."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.broker.context import RequestContext
from ottla.log.results import TimestampedOffset
from ottla.log.timestamps import LargeSearchError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Offset
from ottla.model.pace import paced
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from ottla.protocol.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.offset_timestamps import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from ottla.replication.partition import READ_COMMITTED, Partition

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane

_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_OFFSET_NOT_AVAILABLE_FROM = 5
_EARLIEST_KNOWN = min(_SINCE_VERSION)
_ISOLATION_LEVELS = (0, 1)
ResultT = TypeVar("ResultT")
_CONSUMER = -1
_DEBUG_CONSUMER = -2


def handle(
    context: RequestContext[DataPlane], request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in paced(request.topics):
        for item in paced(topic.partitions):
            key = (topic.name, item.partition_index)
            (twice if key in seen else seen).add(key)
    if request.isolation_level not in _ISOLATION_LEVELS:
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    topics: dict[str, ListOffsetsTopicResponse] = {}
    later: list[_Search] = []
    for topic in paced(request.topics):
        partitions = []
        for item in paced(topic.partitions, 20):
            key = (topic.name, item.partition_index)
            if key in twice:
                if key in seen:  # once is enough
                    seen.remove(key)
                    refused = ListOffsetsPartitionResponse(item.partition_index, int(ErrorCode.INVALID_REQUEST))
                    partitions.append(refused)
                continue
            try:
                partitions.append(_look_up(context, request, topic.name, item))
            except LargeSearchError as large:
                later.append(_Search(topic.name, item, ListOffsetsPartitionResponse(item.partition_index), large))
                partitions.append(later[-1].response)
            except KafkaError as error:
                partitions.append(ListOffsetsPartitionResponse(item.partition_index, int(error.code)))
        if partitions:  # a topic appears once, and only with partitions
            topics.setdefault(topic.name, ListOffsetsTopicResponse(topic.name, [])).partitions += partitions
    response = ListOffsetsResponse(topics=list(topics.values()))
    return _searched(context, request, response, later) if later else response


class _Search(NamedTuple):
    """A search that goes on elsewhere, and its place in the answer."""

    topic: str
    item: ListOffsetsPartition
    response: ListOffsetsPartitionResponse
    large: LargeSearchError


async def _searched(
    context: RequestContext[DataPlane], request: ListOffsetsRequest, response: ListOffsetsResponse, later: list[_Search]
) -> ListOffsetsResponse:
    for topic, item, place, large in later:
        try:
            row = await _search_on(context, request, topic, item, large)
        except KafkaError as error:
            row = ListOffsetsPartitionResponse(item.partition_index, int(error.code))
        for name in ListOffsetsPartitionResponse.__slots__:
            setattr(place, name, getattr(row, name))
    return response


async def _search_on(
    context: RequestContext[DataPlane],
    request: ListOffsetsRequest,
    topic: str,
    item: ListOffsetsPartition,
    large: LargeSearchError,
) -> ListOffsetsPartitionResponse:
    """A worker walks each batch; then the search looks at the log again, because the log may have changed."""
    record_workers = context.broker.record_workers
    if record_workers is None:
        raise RuntimeError("a large search without walkers")
    while True:
        done: asyncio.Future[TimestampedOffset | BaseException | None] = asyncio.get_running_loop().create_future()
        record_workers.run(large.find, partial(_settle, done))
        result = await done
        if isinstance(result, BaseException):
            raise result
        try:
            return _look_up(context, request, topic, item, _Walked(result, large.next_offset))
        except LargeSearchError as error:
            large = error


def _settle(done: asyncio.Future[ResultT], result: ResultT) -> None:
    if not done.done():
        done.set_result(result)


class _Walked(NamedTuple):
    """The result of the search in the batches before `next_offset`."""

    record: TimestampedOffset | None
    next_offset: Offset


def _refused(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """Refuse the whole request, partition by partition in its own order."""
    topics = [
        ListOffsetsTopicResponse(
            topic.name,
            [ListOffsetsPartitionResponse(item.partition_index, int(code)) for item in paced(topic.partitions)],
        )
        for topic in paced(request.topics)
    ]
    return ListOffsetsResponse(topics=topics)


def _look_up(
    context: RequestContext[DataPlane],
    request: ListOffsetsRequest,
    topic: str,
    item: ListOffsetsPartition,
    walked: _Walked | None = None,
) -> ListOffsetsPartitionResponse:
    if item.timestamp < _EARLIEST_KNOWN:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if item.timestamp < 0 and context.version < _SINCE_VERSION.get(item.timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.broker.replicas.get(topic, item.partition_index)
    if request.replica_id != _DEBUG_CONSUMER:
        partition.require_leader(item.current_leader_epoch)
    timestamp, offset, epoch = _offset(context, partition, item.timestamp, request, walked)
    return ListOffsetsPartitionResponse(item.partition_index, 0, timestamp, offset, epoch)


def _offset(
    context: RequestContext[DataPlane],
    partition: Partition,
    timestamp: int,
    request: ListOffsetsRequest,
    walked: _Walked | None,
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) for the requested timestamp; offset -1 when there is no such record."""
    log, version = partition.log, context.version
    # A latest offset never goes back: a new leader refuses to answer until it knows how far the old leader committed.
    unknown_end = request.replica_id == _CONSUMER and partition.high_watermark_lags
    if timestamp == LATEST:
        if unknown_end:
            raise _not_available(version)
        if request.replica_id == _CONSUMER:
            return -1, partition.readable_end(request.isolation_level), partition.leader_epoch
        return -1, log.log_end_offset, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        # The log learns an epoch with its first batch; until then it is the leader's.
        epoch = log.epochs.epoch_for_offset(start) if start < log.log_end_offset else partition.leader_epoch
        return -1, start, epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    on_loop = context.broker.record_workers is not None
    if walked is not None and (walked.record is not None or timestamp == MAX_TIMESTAMP):
        record = walked.record
    elif timestamp == MAX_TIMESTAMP:
        record = log.offset_of_max_timestamp(on_loop=on_loop)
    else:
        record = log.offset_for_timestamp(timestamp, walked.next_offset if walked is not None else 0, on_loop=on_loop)
    limit = partition.readable_end(READ_COMMITTED if request.isolation_level else 0)
    if unknown_end and (record is None or record.offset >= limit):
        raise _not_available(version)
    if record is None:
        return -1, -1, -1
    if timestamp >= 0 and request.replica_id == _CONSUMER and record.offset >= limit:
        return -1, -1, -1
    return record.timestamp, record.offset, record.leader_epoch


def _not_available(version: int) -> KafkaError:
    """Older clients do not support OFFSET_NOT_AVAILABLE; they retry after LEADER_NOT_AVAILABLE."""
    supported = version >= _OFFSET_NOT_AVAILABLE_FROM
    return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if supported else ErrorCode.LEADER_NOT_AVAILABLE)
