"""What the parts of the group machine share: the groups themselves, and the seams (time, timers, randomness).

Only `GroupMachine.replay` adds a group to `groups` or removes a group.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Hashable
from typing import Protocol

from ottla.coordinator.decisions import TimedOperation
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer.timings import ConsumerTimings, consumer_timings
from ottla.coordinator.groups.group import Group, GroupKind
from ottla.coordinator.groups.topic_hashes import TopicHashes
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.env.seams import Clock, RandomSource
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TimestampMs, new_uuid, uuid_to_str

_MAX_TIMINGS = 10_000
"""The limit of remembered group timings; computing the timings of a group again is cheap."""


class OperationTimers(Protocol):
    """Deadlines by key; an operation that comes due runs as an event of its shard."""

    def schedule(self, key: Hashable, delay_ms: float, operation: TimedOperation, *, lasting: bool = False) -> None: ...

    def cancel(self, key: Hashable) -> None: ...

    def __contains__(self, key: Hashable) -> bool: ...


class ShardContext:
    def __init__(
        self,
        settings: GroupCoordinatorSettings,
        clock: Clock,
        random: RandomSource,
        timers: OperationTimers,
        rebalances: Counter[GroupKind] | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.random = random
        self.timers = timers
        self.rebalances: Counter[GroupKind] = Counter() if rebalances is None else rebalances
        """Counted over all shards since the node started: rebalances of classic groups, new epochs of other groups."""
        self.groups: dict[str, Group] = {}
        self.image = MetadataImage()
        """The committed metadata; `on_metadata` replaces the image at each change."""
        self.image_version = 0
        """The metadata offset of the image."""
        self.new_topics_version = -1
        """The metadata offset of the last new topic."""
        self.topic_hashes = TopicHashes()
        self._timings: dict[str, ConsumerTimings] = {}

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage, version: int) -> None:
        self.image = image
        self.image_version = version
        if self.new_topics_version < 0 or delta.reloaded or delta.topics_created:
            self.new_topics_version = version
        if delta.reloaded:
            self.topic_hashes.clear()
        self.topic_hashes.forget(delta.topics_deleted)
        self.topic_hashes.forget(delta.partitions)
        if delta.configs or delta.reloaded:
            self._timings.clear()

    def consumer_timings(self, group_id: str) -> ConsumerTimings:
        timings = self._timings.get(group_id)
        if timings is None:
            if len(self._timings) > _MAX_TIMINGS:
                self._timings.clear()
            timings = self._timings[group_id] = consumer_timings(group_id, self.image, self.settings)
        return timings

    def has_passed(self, since_ms: TimestampMs, duration_ms: int) -> bool:
        """Whether the duration has passed since a wall-clock time that this coordinator or a former coordinator stored.

        A time in the future means that a clock was set back, or that two nodes have different clocks: no group waits until
        the clock reaches that time again.
        """
        now_ms = self.clock.time_ms()
        return not since_ms <= now_ms < since_ms + duration_ms

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The group if it is a classic group."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def new_uuid_text(self) -> str:
        """A member id in Kafka's form for members of consumer groups that send none."""
        return uuid_to_str(new_uuid(self.random.token_bytes))

    def new_member_id(self, prefix: str) -> str:
        """The client id (or the instance id) and a random UUID: a reader of a list of members recognises the client."""
        return f"{prefix}-{uuid.UUID(bytes=self.random.token_bytes(16), version=4)}"


def session_key(group_id: str, member_id: str) -> Hashable:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> Hashable:
    return ("join", group_id)


def sync_key(group_id: str) -> Hashable:
    return ("sync", group_id)
