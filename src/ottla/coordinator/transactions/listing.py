"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from ottla.coordinator.decisions import Waiter, answered
from ottla.coordinator.transactions.metadata import TransactionMetadata
from ottla.coordinator.transactions.shard_context import TransactionDecision, TransactionShardContext
from ottla.coordinator.transactions.states import TransactionState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated import describe_transactions_response as described
from ottla.protocol.generated import list_transactions_response as listed


class Filters(NamedTuple):
    """The filters of ListTransactions; None and negative values do not filter."""

    producer_ids: frozenset[int] | None = None
    states: frozenset[TransactionState] | None = None
    duration_ms: int = -1


class TransactionListing:
    def __init__(self, context: TransactionShardContext) -> None:
        self._context = context

    def describe(self, transactional_id: str, waiter: Waiter) -> TransactionDecision:
        metadata = self._context.transactions.get(transactional_id)
        if metadata is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        by_topic = groupby(sorted(metadata.partitions), key=lambda tp: tp.topic)
        state = described.TransactionState(
            0,
            transactional_id,
            metadata.state.state_name,
            metadata.timeout_ms,
            metadata.start_ms,
            metadata.producer_id,
            metadata.producer_epoch,
            [described.TopicData(topic, [tp.partition for tp in group]) for topic, group in by_topic],
        )
        return answered(waiter, state)

    def list_transactions(self, filters: Filters, waiter: Waiter) -> TransactionDecision:
        now_ms = self._context.clock.time_ms()
        states = [
            listed.TransactionState(metadata.transactional_id, metadata.producer_id, metadata.state.state_name)
            for metadata in self._context.transactions.values()
            if _included(metadata, filters, now_ms)
        ]
        return answered(waiter, states)


def _included(metadata: TransactionMetadata, filters: Filters, now_ms: int) -> bool:
    if filters.producer_ids is not None and metadata.producer_id not in filters.producer_ids:
        return False
    if filters.states is not None and metadata.state not in filters.states:
        return False
    return filters.duration_ms < 0 or now_ms - metadata.start_ms > filters.duration_ms
