"""All partitions of this node, as in the metadata. Logs are created and deleted only here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.log.log_choice import NO_ASSIGNMENT, Assignment
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, NodeId, TopicPartition, Uuid
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.replication.context import ReplicaContext
from ottla.replication.fetcher import FetcherSettings
from ottla.replication.fetchers import Fetchers
from ottla.replication.moves import ReplicaMoves
from ottla.replication.partition import Partition
from ottla.replication.partition_states import PartitionEvent
from ottla.replication.put_off import PutOff

if TYPE_CHECKING:
    from ottla.env.config import TopicConfig
    from ottla.env.seams import Clock
    from ottla.log.log_directory import LogDirectory
    from ottla.log.log_store import LogStore
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
    from ottla.replication.directories import DirectoryAssignments

log = get_logger(__name__)

TopicConfigs = Callable[[str], "TopicConfig"]
"""The effective settings of a topic, by name, as of the published image."""


class Replicas:
    def __init__(
        self,
        node_id: NodeId,
        logs: LogStore,
        clock: Clock,
        topic_config: TopicConfigs,
        *,
        context: ReplicaContext | None = None,
        fetchers: Fetchers | None = None,
    ) -> None:
        self._node_id = node_id
        self.context = ReplicaContext(node_id, clock) if context is None else context
        self.fetchers = Fetchers(self.context, FetcherSettings()) if fetchers is None else fetchers
        self.directories: DirectoryAssignments | None = None
        self._logs = logs
        self._clock = clock
        self._topic_config = topic_config
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[Uuid, dict[int, Partition]] = {}
        self.names: dict[Uuid, str] = {}
        self.moves = ReplicaMoves(logs, clock, lambda: self.directories)
        self._checkpoint_due = False
        """Replicas were removed since the checkpoints were written."""
        self._missing_logs: set[tuple[Uuid, int]] = set()
        """Replicas of this node without a log: the disk was full, or their directory is offline."""
        self.put_off = PutOff(self._checkpoint_removals)
        """Replicas to make, to remove and to configure. Until a new replica is made, the broker returns
        NOT_LEADER_OR_FOLLOWER for the replica, which clients retry."""
        self._verification_enabled = False
        self._on_added: list[Callable[[Partition], None]] = []
        self._on_removed: list[Callable[[Partition], None]] = []

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def subscribe(self, *, added: Callable[[Partition], None], removed: Callable[[Partition], None]) -> None:
        """Get a call for each partition that this node adds or removes; the present partitions come first."""
        self._on_added.append(added)
        self._on_removed.append(removed)
        for partition in self:
            added(partition)

    def get(self, topic: str, partition: int) -> Partition:
        partitions = self.by_name.get(topic)
        if partitions is None or partition not in partitions:
            if self.context.image.partition(topic, partition) is not None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partitions[partition]

    def get_by_id(self, topic_id: Uuid, partition: int) -> Partition:
        partitions = self.by_id.get(topic_id)
        if partitions is None or partition not in partitions:
            topic = self.context.image.topics_by_id.get(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if partition in topic.partitions:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partitions[partition]

    def verify_transactions(self, *, enabled: bool) -> None:
        """transaction.partition.verification.enable, for the logs there are and those to come."""
        self._verification_enabled = enabled
        for partition in self:
            partition.log.producers.verification_enabled = enabled

    # Metadata

    def load(self, image: MetadataImage) -> None:
        """Load every log of the disk, before `on_metadata`. A log that the metadata does not assign to this node is stray."""
        now_ms = self._clock.time_ms()
        self._logs.load(self._topic_config, now_ms, lambda tp: self._assignment(image, tp))
        if not self._logs.logs():
            self._logs.checkpoint_recovery_points(sync=False)  # an empty file: a missing file would later count as lost
        self._destroy_keys_of_deleted(image)
        strays = [tp for tp in self._logs.logs() if self._assignment(image, tp) == NO_ASSIGNMENT]
        strays += [
            tp for tp, orphan in self._logs.moves.orphans.items()
            if self._assignment(image, tp).topic_id != orphan.topic_id
        ]  # fmt: skip
        for tp in strays:
            self._logs.mark_stray(tp, now_ms)
        if strays:
            self._logs.checkpoint_deletion()

    def _assignment(self, image: MetadataImage, tp: TopicPartition) -> Assignment:
        topic = image.topics_by_name.get(tp.topic)
        registration = topic.partitions.get(tp.partition) if topic is not None else None
        if topic is None or registration is None or self._node_id not in registration.replicas:
            return NO_ASSIGNMENT
        return Assignment(topic.id, registration.directory(self._node_id))

    def _destroy_keys_of_deleted(self, image: MetadataImage) -> None:
        """Destroy the keys of topics that were deleted while the node was down, also if a new topic has the same name."""
        deleted_partitions: dict[str, list[TopicPartition]] = {}
        for topic in self._logs.keyed_topics() - image.topics_by_name.keys():
            self._logs.destroy_keys(topic)
        for tp, partition_log in (*self._logs.logs().items(), *self._logs.moves.orphans.items()):
            if (
                tp.topic in image.topics_by_name
                and partition_log.topic_id != ZERO_UUID
                and partition_log.topic_id not in image.topics_by_id
            ):
                deleted_partitions.setdefault(tp.topic, []).append(tp)
        for topic, partitions in deleted_partitions.items():
            with contextlib.suppress(KafkaError):  # `_log_of` asks again before a namesake gets a log
                self._logs.destroy_keys(topic, partitions)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Subscriber of the metadata publisher."""
        self.context.image = image
        if delta.reloaded:
            self.put_off.begin_whole()
            self._reload(image)
            return
        deleted = (len(self.by_id.get(topic_id, ())) for topic_id in delta.topics_deleted)
        self.put_off.begin(sum(map(len, delta.partitions.values())) + sum(deleted) + len(delta.configs))
        for topic_id in delta.topics_deleted:
            self._remove_topic(topic_id)
        for topic_id, indexes in delta.partitions.items():
            self._apply_topic(image.topics_by_id[topic_id], indexes)
        self._checkpoint_removals()
        for resource, name in sorted(delta.configs):
            if resource == RESOURCE_TOPIC:
                self._on_topic_config(name)
            elif resource == RESOURCE_BROKER:
                self._on_broker_config()

    def _reload(self, image: MetadataImage) -> None:
        """A snapshot replaces records that this node has not replayed: any topic or setting may have changed."""
        for topic_id in [topic_id for topic_id in self.by_id if topic_id not in image.topics_by_id]:
            self._remove_topic(topic_id)
        topics = list(self.by_name)
        for topic in image.topics_by_id.values():
            self._apply_topic(topic, topic.partitions)
        self._checkpoint_removals()
        for name in topics:
            self._on_topic_config(name)

    def _on_topic_config(self, topic: str) -> None:
        if topic in self.by_name and not self.put_off.put_off(("config", topic), partial(self._configure, topic)):
            self._configure(topic)

    def _configure(self, topic: str) -> None:
        partitions = self.by_name.get(topic)
        if partitions:
            config = self._topic_config(topic)
            for partition in partitions.values():
                partition.log.config = config

    def _on_broker_config(self) -> None:
        """A broker-level default changed: every topic may be affected."""
        for topic in self.by_name:
            self._on_topic_config(topic)

    def _apply_topic(self, topic: TopicImage, indexes: Mapping[int, object] | set[int]) -> None:
        for index in indexes:
            registration = topic.partitions[index]
            partition = self.by_id.get(topic.id, {}).get(index)
            if self._node_id not in registration.replicas:
                if partition is not None:
                    self._remove(partition)
                    self._checkpoint_due = True
                continue
            added = partition is None
            if partition is None:
                if self._put_off(topic, index):
                    continue
                partition = self._add(topic, index, registration.directory(self._node_id))
                if partition is None:
                    continue
            partition.apply(registration)
            if not partition.log.log_dir.offline:
                self.fetchers.assign(partition)
                self._report_directory(partition, registration)
            if added:
                for callback in self._on_added:
                    callback(partition)

    def _put_off(self, topic: TopicImage, index: int) -> bool:
        """Whether the replica is made in a later turn of the loop. Coordinators look for theirs at once."""
        return topic.name not in INTERNAL_TOPICS and self.put_off.put_off(
            ("make", topic.id, index), partial(self._make, topic.id, index)
        )

    def _make(self, topic_id: Uuid, index: int) -> None:
        """As the metadata is now: the replica may have been removed or made meanwhile."""
        topic = self.context.image.topics_by_id.get(topic_id)
        if topic is not None and index in topic.partitions:
            self._apply_topic(topic, {index})

    def _checkpoint_removals(self) -> None:
        if self._checkpoint_due and not self.put_off:
            self._checkpoint_due = False
            self._logs.checkpoint_deletion()

    def checkpoint_log_start_offsets(self) -> list[LogDirectory]:
        """After DeleteRecords: a kill or a power cut must not restore the deleted records. Returns the directories that
        refused: what was deleted there may come back.
        """
        return self._logs.checkpoint_log_start_offsets()

    def _report_directory(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Report the directory of the replica to the controller when the metadata differs."""
        directory_id = registration.directory(self._node_id)
        if self.directories is None or not registration.directories or self.moves.is_ahead(partition, directory_id):
            return
        if directory_id != partition.log.log_dir.directory_id:
            self.directories.assign(partition)

    def _add(self, topic: TopicImage, index: int, directory_id: Uuid) -> Partition | None:
        tp = TopicPartition(topic.name, index)
        self.put_off.do_now(("drop", tp))  # a replica of a deleted topic of the same name
        try:
            partition_log = self._log_of(tp, topic, directory_id)
        except KafkaError as error:
            if (topic.id, index) not in self._missing_logs:
                log.error("partition.taken_offline", partition=str(tp), reason=error.message)
            self._missing_logs.add((topic.id, index))
            return None
        self._missing_logs.discard((topic.id, index))
        partition_log.producers.verification_enabled = self._verification_enabled
        partition = Partition(self.context, tp, topic.id, partition_log)
        partitions = self.by_id.setdefault(topic.id, {})
        partitions[index] = partition
        self.by_name[topic.name] = partitions
        self.names[topic.id] = topic.name
        self.moves.resume(partition, directory_id)
        return partition

    def _log_of(self, tp: TopicPartition, topic: TopicImage, directory_id: Uuid) -> PartitionLog:
        """The log on disk, or an orphaned copy of a move, or a new log. Raises KafkaError while the metadata names an
        offline directory. The log of a deleted topic of the same name is marked stray first.
        """
        config = self._topic_config(topic.name)
        partition_log = self._logs.get(tp)
        if partition_log is not None and partition_log.topic_id not in (ZERO_UUID, topic.id):
            log.warning(
                "log.set_aside", partition=str(tp), reason="the log belongs to a deleted topic of the same name"
            )
            self._logs.destroy_keys(tp.topic, [tp])
            self._logs.mark_stray(tp, self._clock.time_ms())
            partition_log = None
        if partition_log is None:
            self._logs.check_not_elsewhere(directory_id)
            partition_log = self._logs.moves.adopt(tp, topic.id, self._clock.time_ms())
        if partition_log is None:
            return self._logs.create(tp, topic.id, config, self._clock.time_ms())
        if partition_log.log_dir.directory_id != directory_id:
            # A promotion is recorded before it happens: a log in a different directory is older than the unreadable log.
            self._logs.check_not_offline(directory_id)
        if partition_log.topic_id == ZERO_UUID:
            partition_log.assign_topic_id(topic.id)
        partition_log.config = config
        return partition_log

    def create_missing_logs(self) -> None:
        """Retry the logs that could not be created: the disk may have space again."""
        for topic_id, index in sorted(self._missing_logs):
            topic = self.context.image.topics_by_id.get(topic_id)
            if topic is None or index not in topic.partitions:
                self._missing_logs.discard((topic_id, index))
            else:
                self._apply_topic(topic, {index})

    def _remove_topic(self, topic_id: Uuid) -> None:
        name = self.names.pop(topic_id, None)
        partitions = self.by_id.pop(topic_id, {})
        if name is not None and self.by_name.get(name) is partitions:
            del self.by_name[name]
        if name is not None:
            self._logs.destroy_keys(name)
        for partition in partitions.values():
            self._drop_in_turn(partition)

    def _remove(self, partition: Partition) -> None:
        """A reassignment has removed the replica from this node; the other replicas stay."""
        name, index = partition.topic_partition
        partitions = self.by_id[partition.topic_id]
        del partitions[index]
        if not partitions:
            del self.by_id[partition.topic_id]
            self.names.pop(partition.topic_id, None)
            if self.by_name.get(name) is partitions:
                del self.by_name[name]
        self._drop_in_turn(partition)

    def _drop_in_turn(self, partition: Partition) -> None:
        """No request finds the partition any more; its waiters and its folder may wait for a later turn of the loop."""
        tp = partition.topic_partition
        if tp.topic in INTERNAL_TOPICS or not self.put_off.put_off(("drop", tp), partial(self._drop, partition)):
            self._drop(partition)

    def finish_removals(self) -> None:
        """The logs are about to close: a removed replica that is still there would be a stray after the next start."""
        self.put_off.finish("drop")

    def _drop(self, partition: Partition) -> None:
        self.fetchers.forget(partition)
        self.moves.forget(partition)
        partition.stop(PartitionEvent.REPLICA_REMOVED)
        for callback in self._on_removed:
            callback(partition)
        try:
            self._logs.delete(partition.topic_partition, self._clock.time_ms())
        except KafkaError as error:
            # The directory is offline now; the other partitions must still be handled.
            log.error("partition.not_deleted", partition=str(partition.topic_partition), reason=error.message)

    def on_directory_failed(self, partitions: Iterable[TopicPartition]) -> None:
        """The directory of `partitions` is offline: their waiters get KAFKA_STORAGE_ERROR."""
        for tp in partitions:
            partition = self.by_name.get(tp.topic, {}).get(tp.partition)
            if partition is not None:
                self.fetchers.forget(partition)
                partition.stop(PartitionEvent.DIRECTORY_FAILED)
        self.moves.on_directory_failed()

    def shrink_isrs(self) -> None:
        """Propose ISRs without lagging followers; called every half of replica.lag.time.max.ms."""
        for partition in list(self):
            if partition.leader_state is not None:
                partition.leader_state.maybe_shrink()
