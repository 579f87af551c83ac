"""The parts of streams groups in one shard: `GroupCoordinator` calls `heartbeat` and `describe` directly."""

from __future__ import annotations

from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.streams.describe import StreamsDescribe
from ottla.coordinator.groups.streams.fencing import StreamsFencing
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.heartbeat import StreamsHeartbeat
from ottla.metadata.delta import MetadataDelta


class StreamsGroups:
    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._fencing = StreamsFencing(context)
        self.heartbeat = StreamsHeartbeat(context, self._fencing).heartbeat
        self.describe = StreamsDescribe(context).describe

    def on_loaded(self) -> None:
        """Sessions begin now."""
        for group in self._groups():
            self._fencing.on_loaded(group)

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Groups whose topology names a changed topic compute their metadata hash again with their next heartbeat."""
        topics = self._context.image.topics_by_id
        changed = {
            topics[topic_id].name for topic_id in (*delta.partitions, *delta.topics_created) if topic_id in topics
        }
        changed |= {topic.name for topic in delta.topics_deleted.values()}
        if not changed and not delta.reloaded:
            return
        for group in self._groups():
            required = group.topology.required_topics if group.topology is not None else frozenset()
            group.refresh_due = group.refresh_due or delta.reloaded or not changed.isdisjoint(required)

    def _groups(self) -> list[StreamsGroup]:
        return [group for group in self._context.groups.values() if isinstance(group, StreamsGroup)]
