"""A transaction coordinator with virtual time, in-memory partitions of its topic and a channel that tests can break."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ottla.coordinator.runtime import EndOfTransaction
from ottla.coordinator.transactions.coordinator import TransactionCoordinator
from ottla.coordinator.transactions.markers import OnWritten
from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition, Uuid
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from tests.coordinator.virtual_world import MemoryLog, MemoryPartition, MemoryReplicas, VirtualTime

WriteMarker = Callable[[EndOfTransaction, TopicPartition], ErrorCode]


class Channel:
    """Writes markers with `write`; `broken` partitions answer with a code, `held` answers wait for `release`."""

    def __init__(self, write: WriteMarker) -> None:
        self._write = write
        self.broken: dict[TopicPartition, ErrorCode] = {}
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def write(self, end: EndOfTransaction, partitions: frozenset[TopicPartition], on_written: OnWritten) -> None:
        def work() -> None:
            on_written({tp: self.broken.get(tp) or self._write(end, tp) for tp in sorted(partitions)})

        if self.held:
            self._waiting.append(work)
        else:
            work()

    def release(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()

    def lose(self) -> None:
        """The coordinator's process is gone: nobody waits for these answers."""
        self._waiting.clear()


class TransactionWorld:
    """One node that leads the only partition of the transaction topic."""

    def __init__(
        self, write: WriteMarker, settings: TransactionCoordinatorSettings | None = None, transaction_version: int = 2
    ) -> None:
        self.settings = settings or TransactionCoordinatorSettings(transaction_state_log_num_partitions=1)
        self.transaction_version = transaction_version
        self.time = VirtualTime()
        self.log = MemoryLog()
        self.channel = Channel(write)
        self.epoch = 0
        self.replicas = MemoryReplicas()
        self._ids = itertools.count(1000)
        self.coordinator = self._coordinator()
        self.elect()

    def _coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.settings,
            self.time,
            self.time,
            self.replicas,  # type: ignore[arg-type]
            self.channel,
            lambda: next(self._ids),
            lambda: self.transaction_version,
        )

    @property
    def partition(self) -> MemoryPartition:
        found: MemoryPartition = self.replicas.by_name[TRANSACTION_STATE_TOPIC][0]
        return found

    @property
    def transactions(self) -> dict[str, Any]:
        return dict(self.coordinator.shards[0].machine.transactions)

    def elect(self) -> None:
        self.epoch += 1
        self.replicas.by_name[TRANSACTION_STATE_TOPIC] = {0: MemoryPartition(0, self.log, self.epoch)}
        registration = PartitionRegistration((1,), (1,), 1, self.epoch, self.epoch)
        topic = TopicImage(TRANSACTION_STATE_TOPIC, Uuid(b"transactions-id."), {0: registration})
        image = MetadataImage(topics_by_id={topic.id: topic}, topics_by_name={topic.name: topic})
        self.coordinator.on_metadata(MetadataDelta(reloaded=True), image)

    def restart(self) -> None:
        """kill -9 and a new process over the same log; whoever waited has lost its connection."""
        self.time._queue.clear()
        self.channel.lose()
        self.coordinator = self._coordinator()
        self.elect()
