"""InitProducerId: a producer becomes the owner of a transactional id and fences the earlier producer."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.decisions import Waiter, answered
from ottla.coordinator.transactions.end_transaction import EndTransaction
from ottla.coordinator.transactions.metadata import NO_TIMEOUT_MS, TransactionMetadata, is_epoch_exhausted
from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
from ottla.coordinator.transactions.shard_context import TransactionDecision, TransactionShardContext
from ottla.coordinator.transactions.states import TransactionState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, ProducerEpoch, ProducerId


class ProducerIdAndEpoch(NamedTuple):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class InitRequest(NamedTuple):
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """The producer's current id and epoch, to be bumped (KIP-360)."""
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False


def resolve_timeout_ms(settings: TransactionCoordinatorSettings, request: InitRequest) -> int:
    """The timeout of later transactions; raises KafkaError for requests that Kafka refuses before the lookup of the
    id."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable_two_phase_commit and not settings.transaction_two_phase_commit_enable:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.enable_two_phase_commit:
        return NO_TIMEOUT_MS
    if not 0 < request.timeout_ms <= settings.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return request.timeout_ms


class InitProducerId:
    def __init__(self, context: TransactionShardContext, ending: EndTransaction) -> None:
        self._context = context
        self._ending = ending

    def init(self, request: InitRequest, waiter: Waiter) -> TransactionDecision:
        """Answered with ProducerIdAndEpoch."""
        timeout_ms = resolve_timeout_ms(self._context.settings, request)
        now_ms = self._context.clock.time_ms()
        metadata = self._context.transactions.get(request.transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(
                transactional_id=request.transactional_id,
                producer_id=self._context.new_producer_id(),
                timeout_ms=timeout_ms,
                last_update_ms=now_ms,
            )
        expected = request.expected
        if expected is not None and not _may_own(metadata, expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if metadata.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if metadata.state is TransactionState.ONGOING:
            return self._fence(metadata, waiter)
        after = self._after(metadata, timeout_ms, expected, now_ms)
        answer = ProducerIdAndEpoch(after.producer_id, after.producer_epoch)
        return answered(waiter, answer, self._context.record(after))

    def _fence(self, metadata: TransactionMetadata, waiter: Waiter) -> TransactionDecision:
        """Abort the open transaction; the producer asks again for its epoch after the abort."""
        retry = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._ending.fence(metadata, lambda outcome: waiter(_error(outcome) or retry))

    def _after(
        self, metadata: TransactionMetadata, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int
    ) -> TransactionMetadata:
        current = expected is None or expected.producer_epoch == metadata.producer_epoch
        if metadata.is_exhausted and current:
            producer_id = self._context.new_producer_id()
            return metadata.prepare_rotation(producer_id, timeout_ms, now_ms, record_last_epoch=expected is not None)
        if metadata.is_exhausted:
            # No epoch remains for an older epoch; Kafka answers with this code.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        expected_epoch = None if expected is None else expected.producer_epoch
        return metadata.prepare_increment_epoch(timeout_ms, expected_epoch, now_ms)


def _may_own(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and is_epoch_exhausted(expected.producer_epoch))
    )


def _error(outcome: object) -> KafkaError | None:
    return outcome if isinstance(outcome, KafkaError) else None
