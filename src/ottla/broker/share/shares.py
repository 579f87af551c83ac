"""All of a broker's share groups: sessions, share-partitions, and the coordinator of their state."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.share.partition import SharePartition
from ottla.broker.share.persister import BrokerSharePersister
from ottla.broker.share.sessions import SessionKey, ShareSessions
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.records import SharePartitionKey
from ottla.coordinator.share.settings import ShareCoordinatorSettings
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.connection import Connection
    from ottla.broker.planes import SharePlane


class Shares:
    def __init__(self, broker: SharePlane) -> None:
        self._broker = broker
        settings = ShareCoordinatorSettings.from_config(broker.config)
        self.coordinator = ShareCoordinator(settings, broker.clock, broker.timers, broker.replicas)
        self.persister = BrokerSharePersister(broker, self.coordinator)
        self.sessions = ShareSessions(lambda: broker.config.group_share_max_share_sessions)
        self._partitions: dict[SharePartitionKey, SharePartition] = {}
        self.coordinator.on_metadata(MetadataDelta(reloaded=True), broker.image)

    @property
    def enabled(self) -> bool:
        """The cluster has finalized share.version."""
        return self._broker.image.features.get(SHARE_VERSION, 0) >= 1

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.coordinator.on_metadata(delta, image)
        for share_partition in list(self._partitions.values()):
            partition = share_partition.partition
            if not partition.is_leader or partition.leader_epoch != share_partition.leader_epoch:
                share_partition.fence(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def close(self) -> None:
        for share_partition in list(self._partitions.values()):
            share_partition.fence(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.coordinator.close()

    # Share-partitions

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(list(self._partitions.values()))

    def open(self, key: SharePartitionKey) -> SharePartition:
        """The share-partition, which may still be reading its state; KafkaError unless we lead its partition."""
        share_partition = self._partitions.get(key)
        if share_partition is not None:
            share_partition.retiring = False
            return share_partition
        partition = self._broker.replicas.get_by_id(key.topic_id, key.partition)
        partition.require_leader()
        made = SharePartition(self._broker, key, partition, self.persister, self._forget)
        if made.error is not None:
            raise made.error
        return self._partitions.setdefault(key, made)

    def find(self, key: SharePartitionKey) -> SharePartition:
        """One that has given out records; KafkaError when there is none."""
        share_partition = self._partitions.get(key)
        if share_partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return share_partition

    def _forget(self, share_partition: SharePartition) -> None:
        if self._partitions.get(share_partition.key) is share_partition:
            del self._partitions[share_partition.key]

    # Members that go

    def tie(self, connection: Connection) -> None:
        """When the connection closes, so do the sessions that it has opened."""
        if connection.when_closed is None:
            connection.when_closed = partial(self._on_disconnected, connection)

    def _on_disconnected(self, connection: Connection) -> None:
        for key in self.sessions.of_connection(connection):
            self.end_session(key)

    def end_session(self, key: SessionKey) -> None:
        session = self.sessions.end(key)
        if session is None:
            return
        for topic_id, index in session.partitions:
            share_partition = self._partitions.get(SharePartitionKey(key.group_id, topic_id, index))
            if share_partition is not None:
                share_partition.release(key.member_id)
        if not self.sessions.has_group(key.group_id):
            for share_partition in list(self._partitions.values()):
                if share_partition.key.group_id == key.group_id:
                    share_partition.retire()
