"""DeleteRecords: move a partition's log start offset up, on every replica that is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.delete_records_request import DeleteRecordsRequest
from ottla.protocol.generated.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane


def handle(
    context: RequestContext[DataPlane], request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
    topics: dict[str, DeleteRecordsTopicResult] = {}
    deletions: list[Deletion] = []
    offsets = {
        (topic.name, item.partition_index): item.offset
        for topic in paced(request.topics)
        for item in paced(topic.partitions)
    }
    for (name, index), offset in paced(
        offsets.items(), 20
    ):  # of a partition that is named twice the last offset counts
        try:
            partition, low = _delete(context, name, index, offset)
            result = DeleteRecordsPartitionResult(index, low, 0)
            deletions.append(Deletion(partition, result))
        except KafkaError as error:
            result = DeleteRecordsPartitionResult(index, -1, int(error.code))
        topics.setdefault(name, DeleteRecordsTopicResult(name, [])).partitions.append(result)
    refusing = context.broker.replicas.checkpoint_log_start_offsets()
    for deletion in deletions:
        log_dir = deletion.partition.log.log_dir
        if log_dir in refusing or log_dir.offline:  # a deletion itself may have failed the directory
            deletion.refuse(ErrorCode.KAFKA_STORAGE_ERROR)  # a crash would restore the records
    waiting = [deletion for deletion in deletions if deletion.waits]
    response = DeleteRecordsResponse(topics=list(topics.values()))
    return _wait(context, waiting, response, request.timeout_ms) if waiting else response


def _delete(context: RequestContext[DataPlane], topic: str, index: int, offset: int) -> tuple[Partition, int]:
    partition = context.broker.replicas.get(topic, index)
    if partition.log.config.cleanup_policy == {"compact"}:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition, partition.delete_records_before(offset)


class Deletion:
    """One partition whose log start offset was moved up here, and perhaps not yet by all followers."""

    __slots__ = ("log_start_offset", "partition", "result")

    def __init__(self, partition: Partition, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.result = result
        self.log_start_offset = partition.log.log_start_offset

    @property
    def waits(self) -> bool:
        return not self.result.error_code and self.result.low_watermark < self.log_start_offset

    def settled(self) -> bool:
        if not self.partition.is_leader:
            self.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        self.result.low_watermark = self.partition.low_watermark
        return self.result.low_watermark >= self.log_start_offset

    def refuse(self, code: ErrorCode) -> None:
        self.result.error_code = int(code)
        self.result.low_watermark = -1


def _wait(
    context: RequestContext[DataPlane], waiting: list[Deletion], response: DeleteRecordsResponse, timeout_ms: int
) -> Deferred[DeleteRecordsResponse]:
    key = object()

    def leave() -> None:
        timer.cancel()
        for deletion in waiting:
            deletion.partition.unwatch(key)

    def look() -> None:
        settled = [deletion.settled() for deletion in waiting]  # each notes its low watermark
        if all(settled):
            leave()
            deferred.resolve(response)

    def timed_out() -> None:
        for deletion in waiting:
            if not deletion.settled():
                deletion.refuse(ErrorCode.REQUEST_TIMED_OUT)
        leave()
        deferred.resolve(response)

    deferred: Deferred[DeleteRecordsResponse] = Deferred(leave)
    timer = context.broker.timers.call_later(timeout_ms, timed_out)
    for deletion in waiting:
        deletion.partition.watch(key, look)
    return deferred
