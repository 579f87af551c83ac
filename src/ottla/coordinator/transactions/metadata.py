"""One transactional id: who may write for it, and where its transaction stands.

A value. Each `prepare_*` returns the value after a transition, which takes effect when its record is replayed. A
transition that the table of states does not allow is a bug and raises. A client never gets the epoch 32767, so that one
epoch is always left to fence the client with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ottla.coordinator.transactions.states import (
    BETWEEN_TRANSACTIONS,
    PREPARED,
    PREVIOUS_STATES,
    TransactionState,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition

MAX_EPOCH: ProducerEpoch = 0x7FFF
EPOCH_BUMP_VERSION = 2
"""Transaction version 2: every end of a transaction bumps the epoch (KIP-890)."""
NO_TIMEOUT_MS = 0x7FFFFFFF
"""The timeout of a two-phase commit transaction (KIP-939), which never times out."""
NO_START_MS = -1


def is_epoch_exhausted(epoch: ProducerEpoch) -> bool:
    return epoch >= MAX_EPOCH - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    transactional_id: str
    producer_id: ProducerId
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The next producer id, used once the transaction is complete: the epochs of `producer_id` are used up."""
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the last bump that a client requested. It is not in the log, and lost after a restart."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_START_MS
    last_update_ms: int
    client_transaction_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def bumps_epoch(self) -> bool:
        return self.client_transaction_version >= EPOCH_BUMP_VERSION

    def is_timed_out(self, now_ms: int) -> bool:
        ongoing = self.state is TransactionState.ONGOING and self.timeout_ms != NO_TIMEOUT_MS
        return ongoing and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in BETWEEN_TRANSACTIONS and self.last_update_ms <= now_ms - expiration_ms

    # Transitions

    def prepare_increment_epoch(
        self, timeout_ms: int, expected_epoch: ProducerEpoch | None, now_ms: int
    ) -> TransactionMetadata:
        """A producer starts, or asks for a new epoch and sends its current epoch (KIP-360)."""
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                # The producer did not get the answer to its first request.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._initialised(timeout_ms, now_ms, producer_epoch=epoch, last_producer_epoch=last_epoch)

    def prepare_rotation(
        self, producer_id: ProducerId, timeout_ms: int, now_ms: int, *, record_last_epoch: bool
    ) -> TransactionMetadata:
        """The epochs are used up: a new producer id, from epoch 0."""
        last_epoch = self.producer_epoch if record_last_epoch else NO_PRODUCER_EPOCH
        return self._initialised(
            timeout_ms, now_ms, producer_id=producer_id, producer_epoch=0, last_producer_epoch=last_epoch
        )

    def _initialised(self, timeout_ms: int, now_ms: int, **changes: Any) -> TransactionMetadata:
        return self._to(
            TransactionState.EMPTY,
            now_ms,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_START_MS,
            **changes,
        )

    def prepare_add_partitions(
        self, partitions: frozenset[TopicPartition], now_ms: int, transaction_version: int
    ) -> TransactionMetadata:
        return self._to(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            start_ms=now_ms if self.state in BETWEEN_TRANSACTIONS else self.start_ms,
            client_transaction_version=transaction_version,
        )

    def prepare_end(
        self,
        state: TransactionState,
        transaction_version: int,
        now_ms: int,
        *,
        next_producer_id: ProducerId = NO_PRODUCER_ID,
        fence: bool = False,
    ) -> TransactionMetadata:
        """Into PrepareCommit or PrepareAbort.

        `fence`: the coordinator aborts, and the producer must not use its epoch again.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if transaction_version >= EPOCH_BUMP_VERSION:
            epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
        elif fence:
            epoch, last_epoch = min(epoch + 1, MAX_EPOCH), NO_PRODUCER_EPOCH
        return self._to(
            state,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            start_ms=now_ms if self.state in BETWEEN_TRANSACTIONS else self.start_ms,
            client_transaction_version=transaction_version,
        )

    def prepare_complete(self, now_ms: int) -> TransactionMetadata:
        committed = self.state is TransactionState.PREPARE_COMMIT
        changes: dict[str, Any] = {}
        if self.bumps_epoch and self.next_producer_id != NO_PRODUCER_ID:
            changes = {"producer_id": self.next_producer_id, "producer_epoch": 0}
        return self._to(
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            now_ms,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            **changes,
        )

    def _to(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        if self.state not in PREVIOUS_STATES[state]:
            raise RuntimeError(f"{self.transactional_id} cannot go from {self.state.name} to {state.name}")
        return replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)
