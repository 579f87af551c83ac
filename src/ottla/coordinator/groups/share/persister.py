"""The seam to the share coordinator, which is in this process or behind the wire."""

from __future__ import annotations

from typing import Protocol

from ottla.coordinator.decisions import Waiter
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.errors import ErrorCode, KafkaError


class SharePersister(Protocol):
    """Each waiter is called once, with an answer or with a KafkaError."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, waiter: Waiter) -> None: ...

    def delete(self, key: SharePartitionKey, waiter: Waiter) -> None: ...


class NoPersister:
    """A node that keeps no such state."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, waiter: Waiter) -> None:
        del key, state_epoch, start_offset
        waiter(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def delete(self, key: SharePartitionKey, waiter: Waiter) -> None:
        del key
        waiter(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
