"""Verification that a partition is in its producer's transaction, before the transaction first writes to the partition.

KIP-890: producers of transactions v1 add the partition themselves, and the broker verifies it with the coordinator.
Producers of v2 do not, and the broker adds the partition for them. While the coordinator still ends the producer's last
transaction, the broker retries for a short time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from ottla.coordinator.transactions.metadata import EPOCH_BUMP_VERSION
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId, ProducerEpoch, ProducerId, TopicPartition
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from ottla.broker.planes import VerificationPlane

OnVerified = Callable[[Mapping[TopicPartition, ErrorCode]], None]
"""The partitions that must not be written to, each with its code; empty when all may."""


class TransactionSupportedOperation(Enum):
    """What a client supports, by the version of its request."""

    DEFAULT_ERROR = "supports INVALID_TXN_STATE only"
    GENERIC_ERROR_SUPPORTED = "supports TRANSACTION_ABORTABLE"
    ADD_PARTITION = "supports transactions v2"

    @property
    def adds(self) -> bool:
        return self is TransactionSupportedOperation.ADD_PARTITION


def produce_operation(version: int) -> TransactionSupportedOperation:
    if version >= 12:
        return TransactionSupportedOperation.ADD_PARTITION
    if version >= 11:
        return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    return TransactionSupportedOperation.DEFAULT_ERROR


def offset_commit_operation(version: int) -> TransactionSupportedOperation:
    if version >= 5:
        return TransactionSupportedOperation.ADD_PARTITION
    if version >= 4:
        return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    return TransactionSupportedOperation.DEFAULT_ERROR


class Verifier:
    """One question to the coordinator of `transactional_id`."""

    def __init__(
        self,
        broker: VerificationPlane,
        transactional_id: str,
        producer: tuple[ProducerId, ProducerEpoch],
        partitions: frozenset[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._producer = producer
        self._partitions = partitions
        self._operation = operation

    def ask(self, on_verified: OnVerified) -> None:
        leader = self._coordinator()
        if leader is None:
            on_verified(dict.fromkeys(self._partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return

        def take(answer: Mapping[TopicPartition, ErrorCode] | KafkaError | None) -> None:
            codes = dict.fromkeys(self._partitions, answer.code) if isinstance(answer, KafkaError) else answer or {}
            on_verified({tp: self._code(code) for tp, code in codes.items() if code is not ErrorCode.NONE})

        if leader != self._broker.node_id:
            self._ask_broker(leader, take)
            return
        coordinator = self._broker.transactions
        if self._operation.adds:
            coordinator.add_partitions(
                self._transactional_id, *self._producer, self._partitions, EPOCH_BUMP_VERSION, take
            )
        else:
            coordinator.verify_partitions(self._transactional_id, *self._producer, self._partitions, take)

    def _ask_broker(
        self, leader: NodeId, take: Callable[[Mapping[TopicPartition, ErrorCode] | KafkaError], None]
    ) -> None:
        """The coordinator is on another broker: AddPartitionsToTxn between brokers."""
        from ottla.broker.transactions.remote_transactions import add_partitions_codes, add_partitions_request

        request = add_partitions_request(
            self._transactional_id, self._producer, self._partitions, verify_only=not self._operation.adds
        )
        self._broker.peers.send(leader, request, lambda response: take(add_partitions_codes(response)))

    def ask_patiently(self, on_verified: OnVerified) -> None:
        """As `ask`; while an earlier transaction is being completed, again until the time is up."""
        config, clock = self._broker.config, self._broker.clock
        patience_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)
        until_ms = clock.monotonic_ms() + patience_ms

        def check(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            concurrent = self._operation.adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if concurrent and clock.monotonic_ms() < until_ms:
                backoff_ms = config.add_partitions_to_txn_retry_backoff_ms
                self._broker.timers.call_later(backoff_ms, lambda: self.ask(check))
            else:
                on_verified(codes)

        self.ask(check)

    def _coordinator(self) -> int | None:
        index = self._broker.transactions.partition_for(self._transactional_id)
        registration = self._broker.image.partition(TRANSACTION_STATE_TOPIC, index)
        return None if registration is None or registration.leader < 0 else registration.leader

    def _code(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        knows_little = self._operation is TransactionSupportedOperation.DEFAULT_ERROR
        if code is ErrorCode.TRANSACTION_ABORTABLE and knows_little:
            return ErrorCode.INVALID_TXN_STATE
        return code
