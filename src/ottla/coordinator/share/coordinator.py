"""The share coordinator of a node: finds the shard of a share-partition and runs the event there.

A waiter is called exactly once, with the answer for its share-partition or with a KafkaError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.coordinator.decisions import Waiter
from ottla.coordinator.runtime import Shard, ShardSpec
from ottla.coordinator.shards import Shards
from ottla.coordinator.share.machine import ShareDecision, ShareStateMachine
from ottla.coordinator.share.records import SharePartitionKey, decode, encode
from ottla.coordinator.share.settings import ShareCoordinatorSettings
from ottla.env.logging import get_logger
from ottla.env.seams import Clock, Timer, Timers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import KafkaError
from ottla.model.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

log = get_logger(__name__)

Operation = Callable[[ShareStateMachine], ShareDecision]


class ShareCoordinator:
    def __init__(self, settings: ShareCoordinatorSettings, clock: Clock, timers: Timers, replicas: Replicas) -> None:
        self.settings = settings
        self._timers = timers
        self._image = MetadataImage()
        self._prune_timer: Timer | None = None

        def make_machine(shard: Shard[ShareStateMachine]) -> ShareStateMachine:
            machine = ShareStateMachine(settings, clock, shard.deadlines)
            machine.on_metadata(self._image)
            return machine

        spec = ShardSpec(
            make_machine=make_machine,
            encode=encode,
            decode=decode,
            compression=settings.share_coordinator_state_topic_compression_codec,
            load_buffer_size=settings.share_coordinator_load_buffer_size,
            commit_timeout_ms=settings.share_coordinator_write_timeout_ms,
        )
        partitions = settings.share_coordinator_state_topic_num_partitions
        self.shards = Shards(SHARE_GROUP_STATE_TOPIC, partitions, spec, clock, timers, replicas)
        self._schedule_prune()

    def partition_for(self, key: str) -> int:
        return self.shards.partition_for(key)

    def run(self, key: SharePartitionKey, operation: Operation, waiter: Waiter) -> None:
        self.shards.run(str(key), operation, waiter)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Subscriber of the metadata publisher, behind the replicas."""
        self._image = image
        for shard in self.shards:
            shard.machine.on_metadata(image)
        self.shards.on_metadata(delta, image)
        if delta.topics_deleted:
            for shard in self.shards:
                shard.machine.schedule_forgetting()
                shard.submit(shard.machine.forget_gone)

    def close(self) -> None:
        if self._prune_timer is not None:
            self._prune_timer.cancel()
        self.shards.close()

    # Records older than all last snapshots are deleted: the topic is not compacted.

    def _schedule_prune(self) -> None:
        interval_ms = self.settings.share_coordinator_state_topic_prune_interval_ms
        self._prune_timer = self._timers.call_later(interval_ms, self.prune)

    def prune(self) -> None:
        self._schedule_prune()
        for shard in self.shards:
            first, partition = shard.machine.first_needed_offset, shard.partition
            if first is not None and first > partition.log.log_start_offset:
                # A snapshot replaces older records once the snapshot is committed: before that, a new leader may lack
                # the snapshot.
                partition.when_high_watermark(partition.log.log_end_offset, partial(_delete_before, partition, first))


def _delete_before(partition: Partition, offset: int) -> None:
    try:
        partition.delete_records_before(offset)
    except KafkaError as error:
        log.warning("share_state.not_pruned", reason=error.message)
