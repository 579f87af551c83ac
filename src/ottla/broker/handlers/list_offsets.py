"""ListOffsets: earliest, latest, by timestamp, the largest timestamp."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from ottla.protocol.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.partition import READ_COMMITTED, Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_OFFSET_NOT_AVAILABLE_FROM = 5
_EARLIEST_KNOWN = min(_SINCE_VERSION)
_ISOLATION_LEVELS = (0, 1)
_CONSUMER = -1
_DEBUG_CONSUMER = -2


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for item in topic.partitions:
            key = (topic.name, item.partition_index)
            (twice if key in seen else seen).add(key)
    if request.isolation_level not in _ISOLATION_LEVELS:
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            key = (topic.name, item.partition_index)
            if key in twice:
                if key in seen:  # once is enough
                    seen.remove(key)
                    refused = ListOffsetsPartitionResponse(item.partition_index, int(ErrorCode.INVALID_REQUEST))
                    partitions.append(refused)
                continue
            try:
                partitions.append(_look_up(context, request, topic.name, item))
            except KafkaError as error:
                partitions.append(ListOffsetsPartitionResponse(item.partition_index, int(error.code)))
        if partitions:  # a topic is told once, and not without partitions
            topics.setdefault(topic.name, ListOffsetsTopicResponse(topic.name, [])).partitions += partitions
    return ListOffsetsResponse(topics=list(topics.values()))


def _refused(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """The whole request, as it was asked."""
    topics = [
        ListOffsetsTopicResponse(
            topic.name, [ListOffsetsPartitionResponse(item.partition_index, int(code)) for item in topic.partitions]
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _look_up(
    context: RequestContext, request: ListOffsetsRequest, topic: str, item: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    if item.timestamp < _EARLIEST_KNOWN:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if item.timestamp < 0 and context.version < _SINCE_VERSION.get(item.timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.broker.replicas.get(topic, item.partition_index)
    if request.replica_id != _DEBUG_CONSUMER:
        partition.require_leader(item.current_leader_epoch)
    timestamp, offset, epoch = _offset(partition, item.timestamp, request, context.version)
    return ListOffsetsPartitionResponse(item.partition_index, 0, timestamp, offset, epoch)


def _offset(partition: Partition, timestamp: int, request: ListOffsetsRequest, version: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) of what is asked for; offset -1 when there is no such record."""
    log = partition.log
    # A latest offset never goes back: a new leader that does not know yet how far the old one committed says so.
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
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    limit = partition.readable_end(READ_COMMITTED if request.isolation_level else 0)
    if unknown_end and (found is None or found.offset >= limit):
        raise _not_available(version)
    if found is None:
        return -1, -1, -1
    if timestamp >= 0 and request.replica_id == _CONSUMER and found.offset >= limit:
        return -1, -1, -1
    return found.timestamp, found.offset, found.leader_epoch


def _not_available(version: int) -> KafkaError:
    """Older clients do not know the one, and try again after the other."""
    known = version >= _OFFSET_NOT_AVAILABLE_FROM
    return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
