"""TxnOffsetCommit: offsets as part of a transaction. Up to v4 the producer has added the group's partition; we verify.

From v5 on (transactions v2) we add it. The offsets are pending until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.transactions.transaction_verification import Verifier, offset_commit_operation
from ottla.coordinator.runtime import TransactionalProducer
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.model.pace import paced
from ottla.model.topic_names import OFFSETS_TOPIC
from ottla.protocol.generated.txn_offset_commit_request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from ottla.protocol.generated.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane

_LOAD_IN_PROGRESS_FROM = 2
_NO_SEQUENCE = -1
_COORDINATOR_CODES = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}
"""Errors of a verification, in words that every client retries on."""


def handle(
    context: RequestContext[TransactionPlane], request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Deferred[TxnOffsetCommitResponse]:
    return _Commit(context, request).start()


class _Commit:
    def __init__(self, context: RequestContext[TransactionPlane], request: TxnOffsetCommitRequest) -> None:
        self._context = context
        self._request = request
        self._refused: list[TxnOffsetCommitResponseTopic] = []
        self._topic_ids: dict[str, Uuid] = {}
        self._deferred: Deferred[TxnOffsetCommitResponse] | None = None
        self._response: TxnOffsetCommitResponse | None = None

    def start(self) -> TxnOffsetCommitResponse | Deferred[TxnOffsetCommitResponse]:
        self._request.topics = self._existing()
        if not self._request.topics:
            return TxnOffsetCommitResponse(topics=self._refused)
        if not self._request.group_id:
            self._fail(KafkaError(ErrorCode.INVALID_GROUP_ID))
        else:
            self._verify()
        if self._response is not None:
            return self._response
        self._deferred = Deferred()
        return self._deferred

    def _existing(self) -> list[TxnOffsetCommitRequestTopic]:
        """The partitions that exist; answers for the others are made at once."""
        existing = []
        for topic in paced(self._request.topics):
            image = self._context.broker.image.topics_by_name.get(topic.name)
            partitions = {} if image is None else image.partitions
            missing = [
                item.partition_index for item in paced(topic.partitions) if item.partition_index not in partitions
            ]
            if missing:
                self._refused.append(_all(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            kept = [item for item in paced(topic.partitions) if item.partition_index in partitions]
            if image is not None and kept:
                self._topic_ids[topic.name] = image.id
                existing.append(TxnOffsetCommitRequestTopic(topic.name, kept))
        return existing

    def _verify(self) -> None:
        context, request = self._context, self._request
        broker = context.broker
        operation = offset_commit_operation(context.version)
        producer = (request.producer_id, request.producer_epoch)
        if not operation.adds and not broker.config.transaction_partition_verification_enable:
            self._commit(TransactionalProducer(*producer))
            return
        index = broker.groups.partition_for(request.group_id)
        try:
            log = broker.groups.shards[index].partition.log
            verification_guard = log.producers.start_verification(
                request.producer_id,
                _NO_SEQUENCE,
                request.producer_epoch,
                broker.clock.time_ms(),
                supports_epoch_bump=operation.adds,
            )
        except KafkaError as error:
            self._fail(error)
            return
        if verification_guard is None:
            self._commit(TransactionalProducer(*producer))
            return
        partition = TopicPartition(OFFSETS_TOPIC, index)

        def verified(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            code = codes.get(partition)
            if code is None:
                self._commit(TransactionalProducer(*producer, verification_guard))
            else:
                self._fail(KafkaError(_COORDINATOR_CODES.get(code, code)))

        transactional_id = request.transactional_id
        Verifier(broker, transactional_id, producer, frozenset({partition}), operation).ask(verified)

    def _commit(self, producer: TransactionalProducer) -> None:
        self._context.broker.groups.commit_transactional_offsets(
            self._context.version, self._request, self._topic_ids, producer, self._take
        )

    def _take(self, answer: TxnOffsetCommitResponse | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            self._fail(answer)
            return
        by_name = {topic.name: topic for topic in self._refused}
        topics = list(self._refused)
        for topic in paced(answer.topics):
            same = by_name.get(topic.name)
            if same is None:
                topics.append(topic)
            else:
                same.partitions += topic.partitions
        self._finish(TxnOffsetCommitResponse(topics=topics))

    def _fail(self, error: KafkaError) -> None:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._context.version < _LOAD_IN_PROGRESS_FROM:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        failed = [
            _all(topic.name, [item.partition_index for item in paced(topic.partitions)], code)
            for topic in paced(self._request.topics)
        ]
        self._finish(TxnOffsetCommitResponse(topics=self._refused + failed))

    def _finish(self, response: TxnOffsetCommitResponse) -> None:
        if self._deferred is None:
            self._response = response
        else:
            self._deferred.resolve(response)


def _all(name: str, indexes: list[int], code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name, [TxnOffsetCommitResponsePartition(index, int(code)) for index in paced(indexes)]
    )
