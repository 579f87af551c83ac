"""The parts of share groups in one shard: `ShareCoordination` calls them directly."""

from __future__ import annotations

from ottla.coordinator.decisions import GroupDecision, Waiter, answered
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.share.describe import describe
from ottla.coordinator.groups.share.forgetting import ShareForgetting
from ottla.coordinator.groups.share.group import ShareGroup
from ottla.coordinator.groups.share.heartbeat import ShareHeartbeat
from ottla.coordinator.groups.share.offsets import ShareOffsets
from ottla.metadata.delta import MetadataDelta


class ShareGroups:
    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._heartbeat = ShareHeartbeat(context)
        self.heartbeat = self._heartbeat.heartbeat
        self.offsets = ShareOffsets(context)
        self.forgetting = ShareForgetting(context)

    def describe(self, group_id: str, waiter: Waiter) -> GroupDecision:
        return answered(waiter, describe(self._context, group_id))

    def on_loaded(self) -> None:
        """Sessions begin now."""
        for group in self._groups():
            for member_id in group.members:
                self._heartbeat.touch(group.group_id, member_id)
        self.forgetting.on_loaded()

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Groups that read a changed topic compute their metadata hash again with their next heartbeat."""
        topics = self._context.image.topics_by_id
        changed = {topics[topic_id].name for topic_id in delta.partitions if topic_id in topics}
        changed |= {topic.name for topic in delta.topics_deleted.values()}
        changed |= {topics[topic_id].name for topic_id in delta.topics_created if topic_id in topics}
        for group in self._groups():
            group.refresh_due = group.refresh_due or delta.reloaded or any(map(group.is_subscribed_to, changed))

    def _groups(self) -> list[ShareGroup]:
        return [group for group in self._context.groups.values() if isinstance(group, ShareGroup)]
