"""The shards of one coordinator on this node: they come and go with the leadership of its topic's partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Generic

from ottla.coordinator.decisions import Waiter
from ottla.coordinator.loading import LoadingShards
from ottla.coordinator.runtime import AnyDecision, MachineT, Shard, ShardSpec, TransactionalProducer
from ottla.env.seams import Clock, Timers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import java_hash
from ottla.model.pace import paced
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

_SIGN_BIT = 1 << 31


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    """The partition of an internal topic for a key: Java's String.hashCode, as every Kafka broker computes it.

    As in Kafka's Utils.abs, the smallest integer, which has no positive twin, becomes 0.
    """
    hashed = java_hash(key)
    return 0 if hashed == -_SIGN_BIT else abs(hashed) % partitions


class Shards(Generic[MachineT]):
    def __init__(
        self,
        topic: str,
        default_partitions: int,
        spec: ShardSpec[MachineT],
        clock: Clock,
        timers: Timers,
        replicas: Replicas,
    ) -> None:
        self.topic = topic
        self._default_partitions = default_partitions
        self._spec = spec
        self._clock = clock
        self._timers = timers
        self._replicas = replicas
        self._shards: dict[int, Shard[MachineT]] = {}
        self._loading = LoadingShards(timers)
        self._partition_count = 0
        """The partition count of the topic; 0 as long as the topic does not exist."""
        self.creating_topic = False
        """A request is creating the topic; stored here so that only one request does."""

    def __iter__(self) -> Iterator[Shard[MachineT]]:
        return iter(list(self._shards.values()))

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, index: int) -> Shard[MachineT]:
        """KafkaError(NOT_COORDINATOR) for a partition that this node does not lead."""
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    def partition_for(self, key: str) -> int:
        return partition_for(key, self._partition_count or self._default_partitions)

    def run(
        self,
        key: str,
        operation: Callable[[MachineT], AnyDecision],
        waiter: Waiter,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Run one event of the shard that holds `key`; a refusal also goes to the waiter."""
        try:
            self[self.partition_for(key)].run(operation, producer)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._loading.prefer(self[self.partition_for(key)])
            waiter(error)

    def run_all(self, operation: Callable[[MachineT, Waiter], AnyDecision], waiter: Waiter) -> None:
        """Run one event on every shard; the answers, which are lists, become one list for `waiter`.

        An error of one shard fails the whole request. NOT_COORDINATOR does not: the shard has just left this node.
        """
        shards = list(self)
        gathered = _GatheredLists(len(shards), waiter)
        for shard in paced(shards, 50):
            try:
                shard.run(lambda machine: operation(machine, gathered.add))
            except KafkaError as error:
                gathered.add(error)

    # Leadership

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Called after the replicas have the change: their partitions have their leaders by then."""
        topic = image.topics_by_name.get(self.topic)
        self._partition_count = 0 if topic is None else len(topic.partitions)
        if topic is None:
            self.close()
        elif delta.reloaded:
            self._elect(set(topic.partitions) | set(self._shards))
        elif topic.id in delta.partitions:
            # A topic that was deleted and created again may have fewer partitions: shards of missing partitions close.
            self._elect(delta.partitions[topic.id] | (self._shards.keys() - topic.partitions.keys()))

    def close(self) -> None:
        """The node stops, or the topic is gone: waiting requests are answered with NOT_COORDINATOR."""
        for index in list(self._shards):
            self._close(index)

    def _elect(self, indexes: set[int]) -> None:
        replicas = self._replicas.by_name.get(self.topic, {})
        for index in sorted(indexes):
            partition = replicas.get(index)
            shard = self._shards.get(index)
            if partition is None or not partition.is_leader:
                self._close(index)
            elif shard is None or shard.partition is not partition or shard.leader_epoch != partition.leader_epoch:
                self._close(index)
                self._open(index, partition)

    def _open(self, index: int, partition: Partition) -> None:
        shard = self._shards[index] = Shard(partition, self._spec, self._clock, self._timers)
        self._loading.add(shard)

    def _close(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close()


class _GatheredLists:
    """Joins one list of each shard; the waiter gets the result after the last answer."""

    def __init__(self, expected: int, waiter: Waiter) -> None:
        self._missing = expected
        self._waiter = waiter
        self._items: list[Any] = []
        self._error: KafkaError | None = None
        if expected == 0:
            waiter(self._items)

    def add(self, answer: list[Any] | KafkaError) -> None:
        if not isinstance(answer, KafkaError):
            self._items += answer
        elif answer.code is not ErrorCode.NOT_COORDINATOR:
            self._error = answer
        self._missing -= 1
        if self._missing == 0:
            self._waiter(self._items if self._error is None else self._error)
