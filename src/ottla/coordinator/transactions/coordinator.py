"""The transaction coordinator of a node: finds the shard of a transactional id and runs the event there.

A waiter is called exactly once, with a response or with the KafkaError that the whole request failed with.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.decisions import Waiter
from ottla.coordinator.runtime import Shard, ShardSpec
from ottla.coordinator.shards import Shards
from ottla.coordinator.transactions.end_transaction import EndRequest
from ottla.coordinator.transactions.init_producer_id import InitRequest, resolve_timeout_ms
from ottla.coordinator.transactions.listing import Filters
from ottla.coordinator.transactions.machine import TransactionMachine
from ottla.coordinator.transactions.markers import MarkerChannel
from ottla.coordinator.transactions.records import decode, encode
from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
from ottla.coordinator.transactions.shard_context import TakeProducerId, TransactionDecision, TransactionShardContext
from ottla.env.seams import Clock, Timers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from ottla.replication.replicas import Replicas

Operation = Callable[[TransactionMachine], TransactionDecision]


class TransactionCoordinator:
    def __init__(
        self,
        settings: TransactionCoordinatorSettings,
        clock: Clock,
        timers: Timers,
        replicas: Replicas,
        channel: MarkerChannel,
        take_producer_id: TakeProducerId,
        transaction_version: Callable[[], int],
    ) -> None:
        self.settings = settings

        def make_machine(shard: Shard[TransactionMachine]) -> TransactionMachine:
            context = TransactionShardContext(
                settings, clock, take_producer_id, transaction_version, shard.leader_epoch
            )
            return TransactionMachine(context, channel, shard.deadlines, shard.submit)

        spec = ShardSpec(
            make_machine=make_machine,
            encode=encode,
            decode=decode,
            load_buffer_size=settings.transaction_state_log_load_buffer_size,
            commit_timeout_ms=settings.request_timeout_ms,
        )
        partitions = settings.transaction_state_log_num_partitions
        self.shards = Shards(TRANSACTION_STATE_TOPIC, partitions, spec, clock, timers, replicas)

    def partition_for(self, transactional_id: str) -> int:
        return self.shards.partition_for(transactional_id)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Subscriber of the metadata publisher, behind the replicas."""
        self.shards.on_metadata(delta, image)

    def close(self) -> None:
        self.shards.close()

    # Requests

    def init_producer_id(self, request: InitRequest, waiter: Waiter) -> None:
        try:
            resolve_timeout_ms(self.settings, request)
        except KafkaError as error:
            waiter(error)
            return
        self._run(request.transactional_id, lambda machine: machine.producer_ids.init(request, waiter), waiter)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: frozenset[TopicPartition],
        transaction_version: int,
        waiter: Waiter,
    ) -> None:
        self._run(
            transactional_id,
            lambda machine: machine.partitions.add(
                transactional_id, producer_id, producer_epoch, partitions, transaction_version, waiter
            ),
            waiter,
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: frozenset[TopicPartition],
        waiter: Waiter,
    ) -> None:
        self._run(
            transactional_id,
            lambda machine: machine.partitions.verify(
                transactional_id, producer_id, producer_epoch, partitions, waiter
            ),
            waiter,
        )

    def end(self, request: EndRequest, waiter: Waiter) -> None:
        self._run(request.transactional_id, lambda machine: machine.ending.end(request, waiter), waiter)

    def describe(self, transactional_id: str, waiter: Waiter) -> None:
        self._run(transactional_id, lambda machine: machine.listing.describe(transactional_id, waiter), waiter)

    def list_transactions(self, filters: Filters, waiter: Waiter) -> None:
        """The ids of all shards of this node, as one list; a loading shard fails the whole request."""
        self.shards.run_all(lambda machine, gather: machine.listing.list_transactions(filters, gather), waiter)

    def _run(self, transactional_id: str, operation: Operation, waiter: Waiter) -> None:
        if not transactional_id:
            waiter(KafkaError(ErrorCode.INVALID_REQUEST))
        else:
            self.shards.run(transactional_id, operation, waiter)
