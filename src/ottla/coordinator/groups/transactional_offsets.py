"""TxnOffsetCommit: offsets that count when the transaction they are part of commits.

The records are appended as the producer's; the store keeps them aside until the marker comes. They carry the topic's id,
as those of OffsetCommit do, so that they never count for a new topic of the same name.
"""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.group import PartitionCheck
from ottla.coordinator.groups.offsets import utf16_length
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.records import OffsetCommitRecord, offset_commit_value
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.generated.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_NO_EXPIRY = -1


class TransactionalOffsets:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def commit(
        self, version: int, request: TxnOffsetCommitRequest, topic_ids: dict[str, Uuid], waiter: Waiter
    ) -> GroupDecision:
        """The partitions of the request exist; `topic_ids` are those of its topics."""
        check = self._validate(version, request)
        draft = Draft()
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            answer = TxnOffsetCommitResponseTopic(topic.name)
            for partition in topic.partitions:
                code = self._commit_one(request.group_id, topic, partition, topic_ids, check, draft)
                answer.partitions.append(TxnOffsetCommitResponsePartition(partition.partition_index, code))
            response.topics.append(answer)
        draft.answer(waiter, response)
        return draft.decide()

    def _validate(self, version: int, request: TxnOffsetCommitRequest) -> PartitionCheck | None:
        group = self._context.groups.get(request.group_id)
        if group is None:
            if request.generation_id < 0:
                return None
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        try:
            return group.validate_offset_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                version=version,
                transactional=True,
            )
        except KafkaError as error:
            raise _as_generation(error) from error

    def _commit_one(
        self,
        group_id: str,
        topic: TxnOffsetCommitRequestTopic,
        partition: TxnOffsetCommitRequestPartition,
        topic_ids: dict[str, Uuid],
        check: PartitionCheck | None,
        draft: Draft,
    ) -> ErrorCode:
        metadata = partition.committed_metadata
        if metadata is not None and utf16_length(metadata) > self._context.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        topic_id = topic_ids[topic.name]
        if topic_id not in self._context.image.topics_by_id:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # deleted while the transaction was verified
        if check is not None:
            try:
                check(topic.name, topic_id, partition.partition_index)
            except KafkaError as error:
                raise _as_generation(error) from error
        value = offset_commit_value(
            partition.committed_offset,
            partition.committed_leader_epoch,
            metadata,
            self._context.clock.time_ms(),
            _NO_EXPIRY,
            topic_id,
        )
        draft.records.append(OffsetCommitRecord(group_id, topic.name, partition.partition_index, value))
        return ErrorCode.NONE


def _as_generation(error: KafkaError) -> KafkaError:
    """Producers use generations, not member epochs."""
    return KafkaError(ErrorCode.ILLEGAL_GENERATION) if error.code is ErrorCode.STALE_MEMBER_EPOCH else error
