"""The transaction machine: the state and the decisions of one shard of the transaction coordinator.

The parts decide: their methods with a waiter return records and answers. Only `replay` changes durable state: on the
live path right after the append, on load for the whole log. Both paths end in the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.coordinator.decisions import CoordinatorAnswer
from ottla.coordinator.transactions.completion import Completion, TimedOperation, TransactionTimers
from ottla.coordinator.transactions.end_transaction import EndTransaction
from ottla.coordinator.transactions.expiry import TransactionExpiry
from ottla.coordinator.transactions.init_producer_id import InitProducerId
from ottla.coordinator.transactions.listing import TransactionListing
from ottla.coordinator.transactions.markers import MarkerChannel
from ottla.coordinator.transactions.metadata import TransactionMetadata
from ottla.coordinator.transactions.partitions import TransactionPartitions
from ottla.coordinator.transactions.records import TransactionRecord
from ottla.coordinator.transactions.shard_context import TransactionDecision, TransactionShardContext
from ottla.coordinator.transactions.states import TransactionState
from ottla.model.decision import Decision
from ottla.model.ids import ProducerId


class TransactionMachine:
    def __init__(
        self,
        context: TransactionShardContext,
        channel: MarkerChannel,
        timers: TransactionTimers,
        submit: Callable[[TimedOperation], object],
    ) -> None:
        self._context = context
        self._completion = Completion(context, channel, timers, submit)
        self.ending = EndTransaction(context, self._completion)
        self.producer_ids = InitProducerId(context, self.ending)
        self.partitions = TransactionPartitions(context)
        self.listing = TransactionListing(context)
        self._expiry = TransactionExpiry(context, self.ending, timers)

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        return self._context.transactions

    # Life of the shard

    def replay(self, offset: int, producer_id: ProducerId, record: TransactionRecord) -> None:  # noqa: ARG002 - the shape of every machine; only the record matters here
        transactional_id, metadata, _ = record
        if metadata is None:
            self._context.transactions.pop(transactional_id, None)
            self._expiry.note_ended(transactional_id)
            return
        self._context.transactions[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            self._expiry.note_ongoing(transactional_id)
        else:
            self._expiry.note_ended(transactional_id)

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """There are no markers in this log."""

    def on_loaded(self) -> TransactionDecision:
        """Complete the transactions that were prepared before the restart."""
        self._expiry.start()
        answers: list[CoordinatorAnswer] = []
        for transactional_id, metadata in self._context.transactions.items():
            if metadata.is_prepared:
                answers += self._completion.resume(transactional_id).response
        return Decision(answers)

    def on_unloaded(self) -> TransactionDecision:
        """A different broker leads now and completes the prepared transactions."""
        self._completion.close()
        return Decision([])
