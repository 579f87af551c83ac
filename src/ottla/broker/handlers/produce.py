"""Produce: each partition's batch straight from the receive buffer into its log.

The records field is a view of the receive buffer; it is patched and written within this call and never kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.broker.connection import CloseConnection
from ottla.broker.context import RequestContext
from ottla.broker.deferred import Answer, Deferred
from ottla.broker.leadership import current_leader, leader_endpoints
from ottla.broker.produce.produce_refusals import request_refusal
from ottla.broker.produce.verification_results import VerificationError, VerificationResult
from ottla.log.validation import RefusedRequestError, check_request, response_message
from ottla.log.validation_records import LargeWalkError, RecordValidationError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Offset, TopicPartition, Uuid
from ottla.model.pace import paced
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records_header import ATTRIBUTES_LOW_AT, TRANSACTIONAL_MASK
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.planes import ProducePlane
    from ottla.broker.produce.large_produce import LargeBatch
    from ottla.broker.schemas.schema_judgement import InvalidRecords
    from ottla.log.validation import ValidatedBatches

FIRST_TOPIC_ID_VERSION = 13
FIRST_LEADER_HINT_VERSION = 10
ACKS_ALL = -1
ADMIN_CLIENT_ID = "__admin_client"
_NO_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Refusals that carry no log start offset; the others are the log's own verdict on a batch, and carry it."""
_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def handle(context: RequestContext[ProducePlane], request: ProduceRequest) -> Answer[ProduceResponse]:
    """A ProduceResponse now or later; None when acks=0 asks for none."""
    if context.broker.schemas is not None:
        from ottla.broker.schemas.schema_validation import validated

        return validated(context, request, find_partition, partial(_handle, context, request))
    if request.transactional_id is not None:
        return _handle(context, request, MappingProxyType({}))
    return Append(context, request).answer()


def _handle(
    context: RequestContext[ProducePlane], request: ProduceRequest, invalid_records: Mapping[int, InvalidRecords]
) -> ProduceResponse | Deferred[ProduceResponse] | None:
    if request.transactional_id is not None:
        from ottla.broker.produce.transactional_produce import verified

        return verified(context, request, partial(_append, context, request, invalid_records=invalid_records))
    return _append(context, request, invalid_records=invalid_records)


def _append(
    context: RequestContext[ProducePlane],
    request: ProduceRequest,
    verdicts: Mapping[TopicPartition, VerificationResult] = MappingProxyType({}),
    invalid_records: Mapping[int, InvalidRecords] = MappingProxyType({}),
) -> ProduceResponse | Deferred[ProduceResponse] | None:
    return Append(context, request, verdicts, invalid_records).answer()


def find_partition(context: RequestContext[ProducePlane], topic: TopicProduceData, index: int) -> Partition:
    replicas = context.broker.replicas
    if context.version >= FIRST_TOPIC_ID_VERSION:
        partitions = replicas.by_id.get(topic.topic_id)
        if partitions is None or index not in partitions:
            return replicas.get_by_id(topic.topic_id, index)
    else:
        partitions = replicas.by_name.get(topic.name)
        if partitions is None or index not in partitions:
            return replicas.get(topic.name, index)
    return partitions[index]


class Append:
    """One request's appends and what came of them."""

    __slots__ = (
        "_acks", "_context", "_first_error", "_invalid_records", "_large", "_leader_errors", "_now_ms", "_on_loop", "_request",
        "_transactional_id", "_uncommitted", "_verdicts", "_version",
    )  # fmt: skip

    def __init__(
        self,
        context: RequestContext[ProducePlane],
        request: ProduceRequest,
        verdicts: Mapping[TopicPartition, VerificationResult] = MappingProxyType({}),
        invalid_records: Mapping[int, InvalidRecords] = MappingProxyType({}),
    ) -> None:
        self._invalid_records = invalid_records
        self._context = context
        self._request = request
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._verdicts = verdicts
        self._version = context.version
        self._now_ms = context.broker.clock.time_ms()
        self._on_loop = context.broker.record_workers is not None
        self._first_error: ErrorCode | None = None
        self._large: list[LargeBatch] = []
        self._leader_errors: set[int] = set()
        self._uncommitted: list[tuple[Partition, Offset, PartitionProduceResponse]] = []

    def answer(self) -> ProduceResponse | Deferred[ProduceResponse] | None:
        answers = []
        topics = self._request.topic_data
        several = len(topics) > 1 or (len(topics) == 1 and len(topics[0].partition_data) > 1)
        refusal = request_refusal(self._request) if several else None
        for topic in paced(topics) if several else topics:
            partitions = []
            for data in paced(topic.partition_data, 50) if several else topic.partition_data:
                try:
                    if refusal is not None:
                        raise refusal
                    partitions.append(self._partition(topic, data))
                except LargeWalkError:
                    partitions.append(self._later(topic, data))
                except KafkaError as error:
                    cause = error if several else request_refusal(self._request) or error
                    partitions.append(self._failed(topic, data.index, cause))
                    self._count_failure(topic)
            answers.append(TopicProduceResponse(topic.name, topic.topic_id, partitions))
        response = ProduceResponse(
            answers if len(answers) == 1 and answers[0].partition_responses else _merged_topics(answers)
        )
        if self._large:
            return self._walk_large(response)
        return response if self._acks == 1 and not self._leader_errors else self._finished(response)

    def _finished(self, response: ProduceResponse) -> ProduceResponse | Deferred[ProduceResponse] | None:
        if self._acks == 0:
            if self._first_error is not None:
                raise CloseConnection(f"a produce request with acks=0 failed: {self._first_error.name}")
            return None
        if self._leader_errors:
            response.node_endpoints = leader_endpoints(self._context, self._leader_errors, NodeEndpoint)
        if self._uncommitted:
            return self._wait(response, self._request.timeout_ms)
        return response

    def _later(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        from ottla.broker.produce.large_produce import LargeBatch

        batch = LargeBatch(topic, data, find_partition(self._context, topic, data.index))
        self._large.append(batch)
        return batch.response

    def _walk_large(self, response: ProduceResponse) -> Deferred[ProduceResponse]:
        from ottla.broker.produce.large_produce import walked

        record_workers = self._context.broker.record_workers
        if record_workers is None:
            raise RuntimeError("a large walk without walkers")
        finish = partial(self._finished, response)
        return walked(self._context, record_workers, self._large, self._now_ms, self._append_walked, finish)

    def _append_walked(self, batch: LargeBatch, result: ValidatedBatches | KafkaError) -> PartitionProduceResponse:
        try:
            if isinstance(result, KafkaError):
                raise result
            return self._partition(batch.topic, batch.data, result)
        except KafkaError as error:
            self._count_failure(batch.topic)
            return self._failed(batch.topic, batch.data.index, error)

    def _partition(
        self, topic: TopicProduceData, data: PartitionProduceData, validated: ValidatedBatches | None = None
    ) -> PartitionProduceResponse:
        index, records = data.index, data.records
        partition = find_partition(self._context, topic, index)
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD)
        if not -1 <= self._acks <= 1:
            check_request(records, self._version)
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if partition.topic_partition.topic in INTERNAL_TOPICS:
            check_request(records, self._version)
            self._check_internal(partition)
        is_transactional = len(records) > ATTRIBUTES_LOW_AT and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_MASK
        if is_transactional and self._transactional_id is None:
            check_request(records, self._version)
            raise RefusedRequestError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        verification_guard = self._verdicts.get(partition.topic_partition) if self._verdicts else None
        if isinstance(verification_guard, VerificationError):
            raise verification_guard
        invalid_records = self._invalid_records.get(id(data)) if self._invalid_records else None
        if invalid_records is not None:
            invalid_records.refuse()
        result = partition.append_as_leader(
            records,
            now_ms=self._now_ms,
            required_acks=self._acks,
            version=self._version,
            verification_guard=verification_guard,
            validated=validated if invalid_records is None else invalid_records.prepared,
            on_loop=self._on_loop,
        )
        metrics = self._context.broker.metrics
        if metrics is not None:
            count = result.last_offset - result.first_offset + 1
            metrics.produced(self._context, partition.topic_partition.topic, count, len(records))
        response = PartitionProduceResponse(
            index, 0, result.first_offset, result.log_append_time_ms, partition.log.offsets.log_start_offset
        )
        if self._acks == ACKS_ALL and partition.log.offsets.high_watermark <= result.last_offset:
            self._uncommitted.append((partition, result.last_offset + 1, response))
        return response

    def _count_failure(self, topic: TopicProduceData) -> None:
        broker = self._context.broker
        name = topic.name or broker.replicas.names.get(topic.topic_id)
        if broker.metrics is not None and name in broker.replicas.by_name:
            broker.metrics.produce_failed(name)

    def _check_internal(self, partition: Partition) -> None:
        if self._context.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Cannot append to internal topic {partition.topic_partition.topic}",
            )

    def _failed(self, topic: TopicProduceData, index: int, error: KafkaError) -> PartitionProduceResponse:
        if self._first_error is None:
            self._first_error = error.code
        response = PartitionProduceResponse(index, int(error.code), -1, -1, self._log_start_offset(topic, index, error))
        response.error_message = error.shown if isinstance(error, VerificationError) else response_message(error)
        if isinstance(error, RecordValidationError):
            response.record_errors = [BatchIndexAndErrorMessage(i, text) for i, text in error.record_errors]
        if error.code in _LEADER_ERRORS and self._version >= FIRST_LEADER_HINT_VERSION:
            leader_id, epoch = current_leader(self._context, topic.name, topic.topic_id, index)
            response.current_leader = LeaderIdAndEpoch(leader_id, epoch)
            self._leader_errors.add(leader_id)
        return response

    def _log_start_offset(self, topic: TopicProduceData, index: int, error: KafkaError) -> Offset:
        if error.code in _NO_LOG_START or isinstance(error, RefusedRequestError | VerificationError):
            return -1
        try:
            return find_partition(self._context, topic, index).log.log_start_offset
        except KafkaError:
            return -1

    def _wait(self, response: ProduceResponse, timeout_ms: int) -> Deferred[ProduceResponse]:
        """acks=all: answer when every append is below its high watermark; late appends get REQUEST_TIMED_OUT."""
        waiting = dict(enumerate(self._uncommitted))
        keys: dict[int, object] = {}

        def leave() -> None:
            timer.cancel()
            for key, (partition, _, _) in waiting.items():
                partition.unwatch(keys.get(key))

        def committed(key: int, code: ErrorCode) -> None:
            _, _, partition_response = waiting.pop(key)
            if code is not ErrorCode.NONE:
                _uncommit(partition_response, code)
            if not waiting:
                timer.cancel()
                deferred.resolve(response)

        def timed_out() -> None:
            for _, _, partition_response in waiting.values():
                _uncommit(partition_response, ErrorCode.REQUEST_TIMED_OUT)
            leave()
            deferred.resolve(response)

        deferred: Deferred[ProduceResponse] = Deferred(leave)
        timer = self._context.broker.timers.call_later(timeout_ms, timed_out)
        for key, (partition, end_offset, _) in list(waiting.items()):
            keys[key] = partition.when_committed(end_offset, partial(committed, key))
        return deferred


def _merged_topics(answers: list[TopicProduceResponse]) -> list[TopicProduceResponse]:
    """Topics that the request names twice become one answer; topics without partitions are left out."""
    topics: dict[tuple[str, Uuid], TopicProduceResponse] = {}
    for answer in paced(answers):
        topic = topics.setdefault((answer.name, answer.topic_id), answer)
        if topic is not answer:
            topic.partition_responses += answer.partition_responses
    return [answer for answer in paced(topics.values()) if answer.partition_responses]


def _uncommit(response: PartitionProduceResponse, code: ErrorCode) -> None:
    """The batch is in the leader's log, but it is not known whether it stays there."""
    response.error_code = int(code)
    response.base_offset = -1
