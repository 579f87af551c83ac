"""EndTxn, and aborts without a request: a producer that was fenced, a transaction past its timeout.

Since transactions v2 (KIP-890) every end bumps the epoch, so that a delayed EndTxn cannot end a later transaction. The
epoch of a request distinguishes a retry from the next request.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.decisions import CoordinatorAnswer, Waiter, answered
from ottla.coordinator.transactions.completion import Completion
from ottla.coordinator.transactions.metadata import EPOCH_BUMP_VERSION, MAX_EPOCH, TransactionMetadata
from ottla.coordinator.transactions.shard_context import TransactionDecision, TransactionShardContext
from ottla.coordinator.transactions.states import BETWEEN_TRANSACTIONS, PREPARED, TransactionState
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId

_COMMITTED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})
_ABORTED = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})


class EndRequest(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    transaction_version: int
    """The client's transaction version: 0, or 2 from EndTxn v5 on."""

    @property
    def prepared(self) -> TransactionState:
        return TransactionState.PREPARE_COMMIT if self.committed else TransactionState.PREPARE_ABORT

    def was_done(self, state: TransactionState) -> bool:
        return state in (_COMMITTED if self.committed else _ABORTED)


class Ended(NamedTuple):
    """The id and epoch of the producer's next transaction."""

    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class EndTransaction:
    def __init__(self, context: TransactionShardContext, completion: Completion) -> None:
        self._context = context
        self._completion = completion

    def end(self, request: EndRequest, waiter: Waiter) -> TransactionDecision:
        """Answered with Ended as soon as the outcome is certain; the markers follow."""
        if request.transaction_version >= EPOCH_BUMP_VERSION:
            return self._end_with_bump(request, waiter)
        return self._end_without_bump(request, waiter)

    def fence(self, metadata: TransactionMetadata, waiter: Waiter) -> TransactionDecision:
        """Abort an ongoing transaction in an epoch that its producer does not have."""
        version = self._context.transaction_version()
        next_producer_id = NO_PRODUCER_ID
        if version < EPOCH_BUMP_VERSION:
            version = 0
        elif metadata.is_exhausted:
            next_producer_id = self._context.new_producer_id()
        after = metadata.prepare_end(
            TransactionState.PREPARE_ABORT,
            version,
            self._context.clock.time_ms(),
            next_producer_id=next_producer_id,
            fence=True,
        )
        return self._prepare(after, waiter)

    # Transactions v0 and v1

    def _end_without_bump(self, request: EndRequest, waiter: Waiter) -> TransactionDecision:
        metadata = self._context.owned_by(request.transactional_id, request.producer_id)
        if metadata.producer_epoch != request.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if metadata.state is TransactionState.ONGOING:
            after = metadata.prepare_end(request.prepared, 0, self._context.clock.time_ms())
            return self._prepare(after, waiter)
        if not request.was_done(metadata.state):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if metadata.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return answered(waiter, Ended())

    # Transactions v2

    def _end_with_bump(self, request: EndRequest, waiter: Waiter) -> TransactionDecision:
        metadata = self._context.transactions.get(request.transactional_id)
        if metadata is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        rotated = _is_retry_after_rotation(metadata, request)
        if metadata.producer_id != request.producer_id and not rotated:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        # An end without a bump left the epoch to its current owner. The epoch before then belongs to a fenced producer,
        # not to a producer that lost an answer, and must not get the epoch of its successor.
        bumped = metadata.bumps_epoch and metadata.producer_epoch == request.producer_epoch + 1
        retry = rotated or bumped
        if not self._is_valid_epoch(metadata, request, retry=retry):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if metadata.state is TransactionState.ONGOING:
            return self._prepare_bumped(metadata, request, waiter)
        if metadata.state in PREPARED:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS if request.was_done(metadata.state) else ErrorCode.INVALID_TXN_STATE
            )
        if retry and metadata.state is not TransactionState.EMPTY:
            if not request.was_done(metadata.state):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
            return answered(waiter, Ended(metadata.producer_id, metadata.producer_epoch))
        if request.committed:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        # An abort of a transaction in which nothing was written yet: the epoch is bumped all the same.
        return self._prepare_bumped(metadata, request, waiter)

    @staticmethod
    def _is_valid_epoch(metadata: TransactionMetadata, request: EndRequest, *, retry: bool) -> bool:
        same = request.producer_epoch == metadata.producer_epoch
        if metadata.state in PREPARED:
            return metadata.bumps_epoch and metadata.producer_epoch == request.producer_epoch + 1
        if metadata.state in BETWEEN_TRANSACTIONS and metadata.state is not TransactionState.EMPTY:
            return same or retry
        return same

    def _prepare_bumped(
        self, metadata: TransactionMetadata, request: EndRequest, waiter: Waiter
    ) -> TransactionDecision:
        next_producer_id = self._context.new_producer_id() if metadata.is_exhausted else NO_PRODUCER_ID
        after = metadata.prepare_end(
            request.prepared, EPOCH_BUMP_VERSION, self._context.clock.time_ms(), next_producer_id=next_producer_id
        )
        return self._prepare(after, waiter)

    def _prepare(self, after: TransactionMetadata, waiter: Waiter) -> TransactionDecision:
        """The outcome is certain once this record is committed: first the client gets its answer, then the markers are
        sent."""
        completed = after.prepare_complete(after.last_update_ms)
        response = Ended(completed.producer_id, completed.producer_epoch)
        answers = [
            CoordinatorAnswer(waiter, response),
            CoordinatorAnswer(self._completion.starter(after.transactional_id), None),
        ]
        return Decision(answers, [self._context.record(after)])


def _is_retry_after_rotation(metadata: TransactionMetadata, request: EndRequest) -> bool:
    """Its end used up the epochs, and the answer with the new producer id was lost."""
    return (
        metadata.previous_producer_id == request.producer_id
        and request.producer_epoch == MAX_EPOCH - 1
        and metadata.producer_epoch == 0
    )
