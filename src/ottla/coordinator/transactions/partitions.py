"""Adding partitions to a transaction, and asking whether they are in it (KIP-890)."""

from __future__ import annotations

from ottla.coordinator.decisions import Waiter, answered
from ottla.coordinator.transactions.metadata import TransactionMetadata
from ottla.coordinator.transactions.shard_context import TransactionDecision, TransactionShardContext
from ottla.coordinator.transactions.states import TransactionState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition


class TransactionPartitions:
    def __init__(self, context: TransactionShardContext) -> None:
        self._context = context

    def add(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: frozenset[TopicPartition],
        transaction_version: int,
        waiter: Waiter,
    ) -> TransactionDecision:
        """Answered with None."""
        metadata = self._checked(transactional_id, producer_id, producer_epoch)
        if metadata.state is TransactionState.ONGOING and partitions <= metadata.partitions:
            return answered(waiter, None)
        after = metadata.prepare_add_partitions(partitions, self._context.clock.time_ms(), transaction_version)
        return answered(waiter, None, self._context.record(after))

    def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: frozenset[TopicPartition],
        waiter: Waiter,
    ) -> TransactionDecision:
        """Answered with a code for each partition."""
        metadata = self._checked(transactional_id, producer_id, producer_epoch)
        codes = {
            tp: ErrorCode.NONE if tp in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions
        }
        return answered(waiter, codes)

    def _checked(
        self, transactional_id: str, producer_id: ProducerId, producer_epoch: ProducerEpoch
    ) -> TransactionMetadata:
        metadata = self._context.owned_by(transactional_id, producer_id)
        if metadata.producer_epoch != producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if metadata.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return metadata
