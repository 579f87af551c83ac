"""What the parts of the transaction machine share: the transactional ids, and the seams.

Only `TransactionMachine.replay` changes `transactions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.coordinator.decisions import CoordinatorAnswer
from ottla.coordinator.transactions.metadata import TransactionMetadata
from ottla.coordinator.transactions.records import TransactionRecord, value_version
from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
from ottla.env.seams import Clock
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerId

TransactionDecision: TypeAlias = Decision[TransactionRecord, list[CoordinatorAnswer]]
TakeProducerId: TypeAlias = Callable[[], ProducerId | None]
"""An unused producer id; None while more ids are requested from the controller."""


class ProducerIdNeeded(KafkaError):
    """The event needs a producer id and there is none yet. Every client retries on the code."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Producer ids are being fetched; try again")


class TransactionShardContext:
    def __init__(
        self,
        settings: TransactionCoordinatorSettings,
        clock: Clock,
        take_producer_id: TakeProducerId,
        transaction_version: Callable[[], int],
        coordinator_epoch: int,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._take_producer_id = take_producer_id
        self.transaction_version = transaction_version
        """The finalized level of the feature."""
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, TransactionMetadata] = {}

    def new_producer_id(self) -> ProducerId:
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise ProducerIdNeeded
        return producer_id

    def owned_by(self, transactional_id: str, producer_id: ProducerId) -> TransactionMetadata:
        metadata = self.transactions.get(transactional_id)
        if metadata is None or metadata.producer_id != producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return metadata

    def record(self, metadata: TransactionMetadata) -> TransactionRecord:
        return TransactionRecord(metadata.transactional_id, metadata, value_version(self.transaction_version()))
