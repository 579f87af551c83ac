"""The parts of consumer groups in one shard: `GroupCoordinator` calls `heartbeat` and `describe` directly."""

from __future__ import annotations

from ottla.coordinator.groups.classic.rebalance import Rebalance
from ottla.coordinator.groups.consumer.classic_members import ClassicMembers
from ottla.coordinator.groups.consumer.describe import ConsumerDescribe
from ottla.coordinator.groups.consumer.fencing import ConsumerFencing
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.heartbeat import ConsumerHeartbeat
from ottla.coordinator.groups.consumer.migration import Migration
from ottla.coordinator.groups.consumer.rebalance import ConsumerRebalance
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.metadata.delta import MetadataDelta


class ConsumerGroups:
    def __init__(self, context: ShardContext, classic_rebalance: Rebalance) -> None:
        migration = Migration(context, classic_rebalance)
        fencing = ConsumerFencing(context, migration)
        self._context = context
        self._rebalance = ConsumerRebalance(context, fencing)
        self.heartbeat = ConsumerHeartbeat(context, self._rebalance, fencing, migration).heartbeat
        self.classic_members = ClassicMembers(context, self._rebalance, fencing, migration)
        self.describe = ConsumerDescribe(context).describe

    def find(self, group_id: str) -> ConsumerGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def on_loaded(self) -> None:
        """Sessions begin now."""
        for group in self._context.groups.values():
            if isinstance(group, ConsumerGroup):
                self._rebalance.on_loaded(group)

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Groups that read a changed topic compute their metadata hash again with their next heartbeat."""
        topics = self._context.image.topics_by_id
        changed = {topics[topic_id].name for topic_id in delta.partitions if topic_id in topics}
        changed |= {topic.name for topic in delta.topics_deleted.values()}
        changed |= {topics[topic_id].name for topic_id in delta.topics_created if topic_id in topics}
        if not changed and not delta.reloaded:
            return
        for group in self._context.groups.values():
            if isinstance(group, ConsumerGroup) and not group.refresh_due:
                group.refresh_due = delta.reloaded or any(map(group.is_subscribed_to, changed))
