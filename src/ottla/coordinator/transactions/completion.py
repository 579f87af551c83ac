"""From prepared to complete: markers to every partition, again until all partitions have one, then the last record.

Begins when the prepare record is committed, and for every prepared transaction after a load. Only memory has the
missing markers. After a restart all partitions get their marker again, which changes nothing where a marker is already.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Protocol

from ottla.coordinator.decisions import CoordinatorAnswer, Waiter
from ottla.coordinator.runtime import EndOfTransaction
from ottla.coordinator.transactions.markers import MarkerChannel
from ottla.coordinator.transactions.metadata import TransactionMetadata
from ottla.coordinator.transactions.shard_context import TransactionDecision, TransactionShardContext
from ottla.coordinator.transactions.states import TransactionState
from ottla.env.logging import get_logger
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

log = get_logger(__name__)

TimedOperation = Callable[[], TransactionDecision]

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A newer producer or coordinator owns this transactional id: there is nothing to complete here."""


class TransactionTimers(Protocol):
    def schedule(self, key: Hashable, delay_ms: float, operation: TimedOperation) -> None: ...

    def cancel(self, key: Hashable) -> None: ...


class Completion:
    def __init__(
        self,
        context: TransactionShardContext,
        channel: MarkerChannel,
        timers: TransactionTimers,
        submit: Callable[[TimedOperation], object],
    ) -> None:
        self._context = context
        self._channel = channel
        self._timers = timers
        self._submit = submit
        self._missing: dict[str, tuple[TransactionMetadata, set[TopicPartition]]] = {}
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def starter(self, transactional_id: str) -> Waiter:
        """To be answered when the prepare record is committed."""
        return partial(self._on_committed, transactional_id)

    def resume(self, transactional_id: str) -> TransactionDecision:
        """An event without records: the markers go out when everything so far is committed."""
        return Decision([CoordinatorAnswer(self.starter(transactional_id), None)])

    def _on_committed(self, transactional_id: str, outcome: KafkaError | None) -> None:
        metadata = self._context.transactions.get(transactional_id)
        if self._closed or metadata is None or not metadata.is_prepared:
            return
        if outcome is not None:
            self._retry(transactional_id)
            return
        missing = self._missing_of(metadata)
        if not missing:
            self._finish(metadata)
            return
        end = EndOfTransaction(
            metadata.producer_id,
            metadata.producer_epoch,
            self._context.coordinator_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            metadata.client_transaction_version,
        )
        self._channel.write(end, frozenset(missing), partial(self._on_written, metadata))

    def _on_written(self, metadata: TransactionMetadata, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        transactional_id = metadata.transactional_id
        if self._closed or self._context.transactions.get(transactional_id) is not metadata:
            return
        fenced = [tp for tp, code in codes.items() if code in _FENCED]
        if fenced:
            self._missing.pop(transactional_id, None)
            log.error("transaction.not_completed", transactional_id=transactional_id, fenced_by=str(fenced[0]))
            return
        missing = self._missing_of(metadata)
        missing.difference_update(tp for tp, code in codes.items() if code is ErrorCode.NONE)
        if missing:
            reasons = sorted({codes[tp].name for tp in missing if tp in codes})
            log.info("transaction.markers_delayed", transactional_id=transactional_id, reasons=reasons)
            self._retry(transactional_id)
        else:
            self._finish(metadata)

    def _missing_of(self, metadata: TransactionMetadata) -> set[TopicPartition]:
        """The partitions without a marker of this transaction; an earlier transaction of the same id may have left an
        entry."""
        entry = self._missing.get(metadata.transactional_id)
        if entry is None or entry[0] is not metadata:
            entry = self._missing[metadata.transactional_id] = metadata, set(metadata.partitions)
        return entry[1]

    def _retry(self, transactional_id: str) -> None:
        self._timers.schedule(
            ("markers", transactional_id),
            self._context.settings.marker_retry_ms,
            lambda: self.resume(transactional_id),
        )

    def _finish(self, metadata: TransactionMetadata) -> None:
        self._submit(partial(self._complete, metadata))

    def _complete(self, metadata: TransactionMetadata) -> TransactionDecision:
        transactional_id = metadata.transactional_id
        if self._context.transactions.get(transactional_id) is not metadata:
            return Decision([])
        after = metadata.prepare_complete(self._context.clock.time_ms())
        waiter = partial(self._on_completed, transactional_id)
        return Decision([CoordinatorAnswer(waiter, None)], [self._context.record(after)])

    def _on_completed(self, transactional_id: str, outcome: KafkaError | None) -> None:
        metadata = self._context.transactions.get(transactional_id)
        if metadata is None or not metadata.is_prepared:
            self._missing.pop(transactional_id, None)
        elif outcome is not None and not self._closed:
            # The last record could not be written; nothing is missing but that.
            self._retry(transactional_id)
