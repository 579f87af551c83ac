"""The part of a Produce that is special to transactions: each partition's first batch is verified with the coordinator.

The records are views of the receive buffer. An answer that is there at once costs no copy; before a wait they are
copied, because the buffer is not ours any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.connection import CloseConnection
from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.handlers.produce import find_partition
from ottla.broker.produce.verification_results import VerificationError, VerificationResult, verification_error
from ottla.broker.transactions.transaction_verification import Verifier, produce_operation
from ottla.log.producer_state import VerificationGuard
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.generated.produce_request import ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.primitives import Source
from ottla.protocol.records_header import (
    HEADER_BYTES,
    MAGIC_V2,
    PRODUCER_ID_AT,
    has_transactional_bit,
    magic_at,
)

if TYPE_CHECKING:
    from ottla.broker.planes import ProducePlane

_producer_of = Struct(">qhi").unpack_from

AppendWith = Callable[[Mapping[TopicPartition, VerificationResult]], ProduceResponse | Deferred[ProduceResponse] | None]


def verified(
    context: RequestContext[ProducePlane], request: ProduceRequest, append: AppendWith
) -> ProduceResponse | Deferred[ProduceResponse] | None:
    """Append once the coordinator has agreed; partitions that it refuses get their error from `append` too."""
    return _Verification(context, request, append).start()


class _Verification:
    def __init__(self, context: RequestContext[ProducePlane], request: ProduceRequest, append: AppendWith) -> None:
        self._context = context
        self._request = request
        self._append = append
        self._operation = produce_operation(context.version)
        self._verdicts: dict[TopicPartition, VerificationResult] = {}
        self._answered = False
        self._result: ProduceResponse | Deferred[ProduceResponse] | None = None
        self._deferred: Deferred[ProduceResponse] | None = None

    def start(self) -> ProduceResponse | Deferred[ProduceResponse] | None:
        broker = self._context.broker
        if not self._operation.adds and not broker.config.transaction_partition_verification_enable:
            return self._append({})
        producers: set[tuple[ProducerId, ProducerEpoch]] = set()
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                batch = _transactional(data.records)
                if batch is not None:
                    producers.add(batch[:2])
                    self._start_verification(topic, data.index, batch)
        if len(producers) > 1:
            # Kafka refuses the request as a whole: nothing of it is appended.
            return self._append(self._refuse_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        to_verify = frozenset(tp for tp, verdict in self._verdicts.items() if isinstance(verdict, VerificationGuard))
        if not to_verify:
            return self._append(self._verdicts)
        transactional_id = self._request.transactional_id or ""
        Verifier(broker, transactional_id, producers.pop(), to_verify, self._operation).ask_patiently(self._on_verified)
        return self._wait()

    def _start_verification(
        self, topic: TopicProduceData, index: int, batch: tuple[ProducerId, ProducerEpoch, int]
    ) -> None:
        """Start a verification if the batch needs a guard. The append finds errors of the partition itself again."""
        try:
            partition = find_partition(self._context, topic, index)
            partition.require_leader()
        except KafkaError:
            return
        producer_id, epoch, sequence = batch
        try:
            verification_guard = partition.log.producers.start_verification(
                producer_id,
                sequence,
                epoch,
                self._context.broker.clock.time_ms(),
                supports_epoch_bump=self._operation.adds,
            )
        except KafkaError as error:
            self._verdicts[partition.topic_partition] = VerificationError(error.code)
            return
        if verification_guard is not None:
            self._verdicts[partition.topic_partition] = verification_guard

    def _refuse_all(self, code: ErrorCode) -> dict[TopicPartition, VerificationResult]:
        refused: dict[TopicPartition, VerificationResult] = {}
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                try:
                    partition = find_partition(self._context, topic, data.index)
                except KafkaError:
                    continue
                refused[partition.topic_partition] = VerificationError(code)
        return refused

    def _on_verified(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        for tp, code in codes.items():
            if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                self._drop_guard(tp)
            self._verdicts[tp] = verification_error(code, adds=self._operation.adds)
        self._answered = True
        if self._deferred is None:
            self._result = self._append(self._verdicts)
            return
        if self._deferred.done:
            return
        try:
            result = self._append(self._verdicts)
        except CloseConnection as error:
            self._context.connection.refuse(str(error))
            self._deferred.resolve(None)
            return
        if isinstance(result, Deferred):
            result.then(self._deferred.resolve)
        else:
            self._deferred.resolve(result)

    def _drop_guard(self, tp: TopicPartition) -> None:
        verification_guard = self._verdicts[tp]
        partition = self._context.broker.replicas.by_name.get(tp.topic, {}).get(tp.partition)
        if partition is not None and isinstance(verification_guard, VerificationGuard):
            partition.log.producers.drop_verification(verification_guard.producer_id, verification_guard)

    def _wait(self) -> ProduceResponse | Deferred[ProduceResponse] | None:
        if self._answered:
            return self._result
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = bytearray(data.records)
        self._deferred = Deferred()
        return self._deferred


def _transactional(records: Source | None) -> tuple[ProducerId, ProducerEpoch, int] | None:
    """Producer id, epoch and first sequence of a transactional batch; None for anything else."""
    if records is None or len(records) < HEADER_BYTES or magic_at(records, 0) != MAGIC_V2:
        return None
    if not has_transactional_bit(records):
        return None
    producer_id, epoch, sequence = _producer_of(records, PRODUCER_ID_AT)
    return producer_id, epoch, sequence
